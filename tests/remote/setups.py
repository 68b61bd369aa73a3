#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""setups.py REMOTE.md KILN USER: the setups of docs/remote.md.

What the document says is written to files as it stands there, but for addresses,
passwords' places and ports, which are the test's; servers and programs are started with
it, on machines that are homes of their own.
"""
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

DOCUMENT, KILN, USER = map(os.path.abspath, sys.argv[1:4])
S3RVER = os.environ.get("KILN_TEST_S3RVER", "")
HANG_S = 60
started = []
place = None


def blocks():
    """Of each second-level heading its fenced blocks."""
    found, heading, block = {}, None, None
    with open(DOCUMENT, encoding="utf-8") as file:
        for line in file:
            if line.startswith("## "):
                heading = line[3:].strip()
                found[heading] = []
            elif line.startswith("```"):
                if block is None:
                    block = []
                else:
                    if heading:
                        found[heading].append("".join(block))
                    block = None
            elif block is not None:
                block.append(line)
    return found


def block_with(setup, start):
    """The one block whose text begins so."""
    texts = [text for text in blocks()[setup] if text.startswith(start)]
    assert texts, f"{setup}: no block begins with '{start}'"
    return texts


def write(path, text, mode=0o600):
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, mode)
    return path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def serve(command, port, **more):
    """Start a server, until it listens."""
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, **more)
    started.append(server)
    deadline = time.monotonic() + HANG_S
    while time.monotonic() < deadline:
        assert server.poll() is None, f"{command[0]} does not start"
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return server
        except OSError:
            time.sleep(0.01)
    raise AssertionError(f"{command[0]} does not listen")


class Machine:
    """A home, with what is in kiln.conf and the credentials."""

    def __init__(self, name, settings, credentials=None):
        self.home = os.path.join(place, name)
        conf = os.path.join(self.home, ".config", "kiln")
        self.credentials = os.path.join(conf, "credentials")
        settings = re.sub(r"(remote-credentials = ).*",
                          lambda found: found[1] + self.credentials, settings)
        write(os.path.join(conf, "kiln.conf"), settings)
        if credentials:
            write(self.credentials, credentials)
        os.makedirs(os.path.join(self.home, "run"), mode=0o700)
        self.environment = {
            "HOME": self.home, "PATH": os.environ["PATH"],
            "XDG_RUNTIME_DIR": os.path.join(self.home, "run"),
            **{name: os.environ[name] for name in
               ("ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS")
               if name in os.environ}}

    def run(self, *command):
        ended = subprocess.run(command, env=self.environment, cwd=self.home,
                               stdin=subprocess.DEVNULL, text=True,
                               stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, timeout=HANG_S,
                               check=False)
        assert ended.returncode == 0, f"{command}: {ended.stdout}"
        return ended.stdout

    def tools(self, script):
        """Lines of a block, as a shell runs them."""
        self.run("sh", "-ec", script.replace("kiln ", KILN + " "))

    def use(self):
        """(built, from the remote) of ten values."""
        said = self.run(KILN, "run", "--", USER, "0", "10")
        found = re.search(r"built (\d+), from the remote (\d+)", said)
        assert found, said
        return int(found[1]), int(found[2])

    def drain(self):
        self.run(KILN, "wait")

    def end(self):
        """Its helper, which is nobody's child."""
        for name in os.listdir("/proc"):
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    if self.home.encode() in file.read():
                        os.kill(int(name), signal.SIGTERM)
            except (OSError, ValueError):
                pass


def expect(what, wanted):
    assert what == wanted, f"built and fetched {what}, not {wanted}"


def share(writer, reader, n=10):
    """What one builds the other fetches."""
    expect(writer.use(), (n, 0))
    writer.drain()
    expect(reader.use(), (0, n))


def one_redis_in_an_office():
    setup = "One Redis in an office"
    port = free_port()
    conf = block_with(setup, "bind")[0].replace(
        "0.0.0.0", "127.0.0.1") + f"port {port}\ndir {place}\n"
    serve(["redis-server", write(f"{place}/redis.conf", conf)], port)
    settings = block_with(setup, "remote =")[0]
    secret = block_with(setup, "redis://")[0]
    here = lambda text: text.replace("cache.office", f"127.0.0.1:{port}")
    machines = [Machine(name, here(settings), here(secret))
                for name in ("ann", "bob")]
    share(*machines)
    said = machines[1].run(KILN, "doctor")
    assert "correct-horse" not in said, "kiln doctor shows the password"
    return machines


def certificates():
    script = """
        new='openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes'
        $new -x509 -days 2 -subj /CN=test-ca -keyout ca.key -out ca.pem \
            -addext basicConstraints=critical,CA:TRUE
        $new -subj /CN=localhost -keyout cache.key -out server.csr
        echo subjectAltName=DNS:localhost >names
        openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key \
            -CAcreateserial -days 2 -extfile names -out cache.pem"""
    subprocess.run(["sh", "-ec", script], cwd=place, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def ci_writes_developers_read():
    setup = "CI writes, developers read"
    port = free_port()
    certificates()
    write(f"{place}/kiln.passwords", "ci:{PLAIN}a-long-password\n")
    os.makedirs(f"{place}/srv")
    server = block_with(setup, "server {")[0]
    for old, new in (("443", f"127.0.0.1:{port}"), ("/etc/nginx", place),
                     ("/srv/kiln", f"{place}/srv"),
                     ("cache.example", "localhost")):
        server = server.replace(old, new)
    temporary = "".join(f"{name}_temp_path {place}/{name};\n" for name in
                        ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    conf = (f"daemon off;\nmaster_process off;\npid {place}/nginx.pid;\n"
            f"error_log {place}/error.log;\nevents {{ }}\n"
            f"http {{\naccess_log off;\n{temporary}{server}}}\n")
    serve(["/usr/sbin/nginx", "-e", f"{place}/error.log", "-c",
           write(f"{place}/nginx.conf", conf)], port)
    here = lambda text: text.replace("cache.example", f"localhost:{port}")
    remotes = [here(text) for text in block_with(setup, "remote =")]
    secret = here(block_with(setup, "https://")[0])
    make, take = block_with(setup, "kiln key")
    known = f"ca={place}/ca.pem"
    ci = Machine("ci", re.sub(r"(remote = \S+)", rf"\1#{known}", remotes[0]),
                 secret)
    developer, stranger = [
        Machine(name, re.sub(r"(remote = \S+)", rf"\1,{known}", remotes[1]))
        for name in ("developer", "stranger")]
    ci.tools(make)
    shutil.copy(f"{ci.home}/ci.public", developer.home)
    developer.tools(take)
    expect(ci.use(), (10, 0))
    ci.tools(block_with(setup, "kiln wait")[0])
    expect(developer.use(), (0, 10))
    expect(stranger.use(), (10, 0))
    assert len(os.listdir(f"{place}/srv")) >= 10
    return ci, developer, stranger


def s3_far_away_redis_near():
    setup = "S3 far away, Redis near"
    node = shutil.which("node")
    if not node or not os.path.isdir(f"{S3RVER}/node_modules"):
        return None
    near, far = free_port(), free_port()
    serve(["redis-server", "--port", str(near), "--bind", "127.0.0.1",
           "--save", "", "--dir", place], near)
    serve([node, "-e",
           "const S3 = require('@20minutes/s3rver');"
           f"new S3({{address: '127.0.0.1', port: {far}, silent: true,"
           f" directory: '{place}/s3', configureBuckets:"
           " [{name: 'build-cache'}]}).run()"], far,
          env={**os.environ, "NODE_PATH": f"{S3RVER}/node_modules"})
    settings = block_with(setup, "remote =")[0].replace(
        "rack.local", f"127.0.0.1:{near}")
    secret = block_with(setup, "s3://")[0]
    for old, new in (("ACCESS-KEY", "S3RVER"), ("SECRET-KEY", "S3RVER"),
                     ("https://s3.example", f"http://127.0.0.1:{far}")):
        secret = secret.replace(old, new)
    writer, reader = [Machine(name, settings, secret)
                      for name in ("writer", "reader")]
    writer.tools("kiln key new team\nkiln key trust team\n"
                 "kiln key show team >team.public")
    shutil.copy(f"{writer.home}/team.public", reader.home)
    reader.tools("kiln key trust team.public")
    share(writer, reader)
    # The rack has lost all: it comes from far, and is near again.
    flush = "*1\r\n$8\r\nFLUSHALL\r\n"
    with socket.create_connection(("127.0.0.1", near)) as redis:
        redis.sendall(flush.encode())
        redis.recv(64)
    third = Machine("third", settings, secret)
    shutil.copy(f"{writer.home}/team.public", third.home)
    third.tools("kiln key trust team.public")
    expect(third.use(), (0, 10))
    third.drain()
    with socket.create_connection(("127.0.0.1", near)) as redis:
        redis.sendall(b"*1\r\n$6\r\nDBSIZE\r\n")
        n = int(redis.recv(64)[1:].split(b"\r")[0])
    assert n >= 10, f"{n} entries are near"
    return writer, reader, third


def main():
    global place
    setups = (one_redis_in_an_office, ci_writes_developers_read,
              s3_far_away_redis_near)
    print(f"1..{len(setups)}")
    bad = 0
    for number, setup in enumerate(setups, 1):
        place = tempfile.mkdtemp(prefix="kiln-setups.")
        machines = ()
        needs = "redis-server" if "redis" in setup.__name__ else "nginx"
        name = setup.__name__
        try:
            if not (shutil.which(needs) or shutil.which("/usr/sbin/nginx")):
                machines = None
            else:
                machines = setup()
            if machines is None:
                print(f"ok {number} - {name} # SKIP not installed here")
            else:
                print(f"ok {number} - {name}")
        except AssertionError as why:
            bad += 1
            print(f"not ok {number} - {name}\n# {why}")
        for folder in os.listdir(place):
            machine = Machine.__new__(Machine)
            machine.home = os.path.join(place, folder)
            if os.path.isdir(os.path.join(machine.home, "run")):
                machine.end()
        while started:
            server = started.pop()
            server.kill()
            server.wait()
        shutil.rmtree(place, ignore_errors=True)
    return bad


if __name__ == "__main__":
    sys.exit(main())
