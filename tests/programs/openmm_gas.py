# SPDX-License-Identifier: MIT
"""Sixty-four argon atoms, a few steps, on OpenMM's OpenCL platform."""
import openmm

platform = openmm.Platform.getPlatformByName("OpenCL")
system = openmm.System()
system.setDefaultPeriodicBoxVectors((3, 0, 0), (0, 3, 0), (0, 0, 3))
force = openmm.NonbondedForce()
force.setNonbondedMethod(openmm.NonbondedForce.CutoffPeriodic)
force.setCutoffDistance(1.0)
places = []
for i in range(64):
    system.addParticle(39.9)
    force.addParticle(0, 0.34, 0.99)
    places.append((.7 * (i % 4), .7 * (i // 4 % 4), .7 * (i // 16)))
system.addForce(force)
integrator = openmm.VerletIntegrator(0.002)
context = openmm.Context(system, integrator, platform,
                         {"Precision": "single"})
context.setPositions(places)
integrator.step(10)
energy = context.getState(getEnergy=True).getPotentialEnergy()
print(f"ok {energy._value:.2f}")
