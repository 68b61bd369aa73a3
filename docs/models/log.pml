/* SPDX-License-Identifier: MIT */

/*
 * The native store's protocols (docs/formats/log.md, docs/locking.md) as a
 * model for spin: create-only and replacing puts, remove, roll with eviction,
 * index growth, wipe, and a reader, each of which may be slow anywhere, and some
 * killed or stopped for good.  `check` beside this file runs every scenario, and
 * `check --mutants` shows that a rule left out is noticed; -D picks one:
 *
 *	CREATORS n	create-only puts of key 0
 *	REPLACERS n	replacing puts of key 0
 *	OTHERS n	create-only puts of key 1, which shares the buckets
 *	REMOVERS n, ROLLERS n, GROWERS n, WIPERS n, READERS n
 *	REMOVE_FIRST	who puts create-only removes before it does
 *	LOSERS n	the index is damaged, and made anew from the records
 *	KILLS n		how many may die on the way
 *	STOPS n		how many may be stopped for good while they hold byte 0
 *	BEFORE		an entry of key 0 is there from the start
 *	CROWD		the buckets are full of other keys' entries
 *	ANY_SLOT 1	a word goes into any free slot, not into the last one
 *	IN_TURN		puts take room in the order they were made: they are all
 *			alike, so nothing is missed by it
 *	PATIENT		no put may give up
 *
 * What is left out: contents (a record is whole or it is not; checksums are
 * taken to work), the medium, large files, and time limits: a lock is waited for
 * until it comes or its holder is stopped, so that waiting for ever would be
 * seen as a deadlock.
 *
 * At the end of each the judge also asks what an index would lead to that was
 * made anew from the records then.
 *
 * One step of the model is one access to what processes share.
 */

#ifndef CREATORS
#define CREATORS 0
#endif
#ifndef REPLACERS
#define REPLACERS 0
#endif
#ifndef OTHERS
#define OTHERS 0
#endif
#ifndef REMOVERS
#define REMOVERS 0
#endif
#ifndef ROLLERS
#define ROLLERS 0
#endif
#ifndef GROWERS
#define GROWERS 0
#endif
#ifndef WIPERS
#define WIPERS 0
#endif
#ifndef LOSERS
#define LOSERS 0
#endif
#ifndef READERS
#define READERS 0
#endif
#ifdef REMOVE_FIRST
#define REMOVES 1
#else
#define REMOVES (REMOVERS > 0)
#endif
#ifndef ANY_SLOT
#define ANY_SLOT 0
#endif
#ifndef KILLS
#define KILLS 0
#endif
#ifndef STOPS
#define STOPS 0
#endif

#define SLOTS	 2	/* both buckets of both keys */
#define SEGMENTS 6
#ifndef UNITS
#define UNITS	 2	/* records that a segment holds */
#endif
#define PLACES	 ((SEGMENTS + 1) * UNITS)
#define PUTS	 (CREATORS + REPLACERS + OTHERS)
#if REMOVES && PUTS > 0
#define BESIDE	/* puts run beside a remove */
#endif
#ifndef TRIES
#define TRIES	 16
#endif

/* Where nobody rolls, grows or wipes, all that a word leads to stands still, and
   looking at it with the word is one access. */
#if UNITS > 2 && ROLLERS + GROWERS + WIPERS + LOSERS == 0
#define TOGETHER atomic
#else
#define TOGETHER
#endif

/* A word: 0, or the place of a record and whether its put has not settled. */
#define WORD(place, tentative) ((place) * 2 + (tentative))
#define PLACE(word)	       ((word) / 2)
#define IS_TENTATIVE(word)     ((word) % 2)
#define SEGMENT(place)	       ((place) / UNITS)
#define ORDER(word)	       origin[PLACE(word)]
#define IS_REPLACING(word)     (flags[ORDER(word)] & REPLACES)

typedef Index {
	byte word[SLOTS];
	byte tail;	/* the next place; 0: closed */
	byte min_live;	/* segments before are dead */
	byte retired;	/* 0, GROWN, WIPED, LOST */
#ifdef BESIDE
	byte n_removed;	/* counted before each */
#endif
};
#define GROWN 1
#define WIPED 2
#define LOST  3	/* GROWN to those who read it, but the next is another store */

Index lost;		/* for the judge */
Index indexes[3];	/* each store and each growth takes the next */
byte current = 0;	/* what the path leads to */
byte n_indexes = 1;

bit whole[PLACES];	/* a record was written here */
byte key_of[PLACES];
byte flags[PLACES];	/* of the record, below */
byte origin[PLACES];	/* its order: the place where its put wrote it */
bit file[SEGMENTS + 1];	/* the path leads to it */
byte next_number = 2;

/* Flags. */
#define REPLACES  1
#define COPY	  2
#define TOMBSTONE 4
#define VOID	  8	/* nobody finds it any more */

bit structure = 0;	/* byte 0 */

/* For the judge. */
byte n_created = 0;	/* create-only puts of key 0 that said OK */
byte n_exists = 0;
byte n_replaced = 0;
byte n_other = 0;
byte n_killed = 0;
byte n_stopped = 0;
byte n_begun = 0;	/* puts that have taken room */
byte n_given_up = 0;	/* TIMEOUT: nothing was promised */
byte n_dropped = 0;	/* entries of key 0 that eviction let go */
byte was_read = 0;	/* origin of what a look-up of key 0 found */
bit is_wiped = 0;	/* a wipe is over */
bit is_removed = 0;	/* a remove of key 0 is over */
bit is_buried = 0;	/* it found something */
#ifdef BESIDE
byte writer[PLACES];	/* which put wrote it */
bit is_taken[PUTS + 1];	/* what was there of this put was removed */
#endif
byte n_running = 0;

#define IS_LIVE(ix, w) \
	((w) != 0 && SEGMENT(PLACE(w)) >= indexes[ix].min_live)

/* By its tag. */
#define MAY_BE_OF(w, k) ((w) != 0 && key_of[PLACE(w)] == (k))

/* What verifies: a whole record of this key whose file can be opened. */
#define IS_OF(w, k) (file[SEGMENT(PLACE(w))] && IS_OPEN_OF(w, k))
/* The same for those who have all files open. */
#define IS_OPEN_OF(w, k) (MAY_BE_OF(w, k) && IS_SOUND(PLACE(w)))
#define IS_SOUND(place)	 (whole[place] && !(flags[place] & VOID))

/* ---- Put ------------------------------------------------------------------ */

#define MAY_DIE	 if :: n_killed < KILLS -> n_killed++; goto dead :: true fi
#define MAY_STOP if :: n_stopped < STOPS -> n_stopped++; goto stopped :: true fi

/* Byte 0.  Not `holds`: its holder is stopped, and our time limit is over. */
inline take_structure()
{
	atomic {
		if
		:: structure == 0 -> structure = 1; holds = 1
		:: structure && n_stopped > 0 -> holds = 0
		fi
	}
}

/* The system does the same for those who die. */
inline leave_structure()
{
	atomic {
		if
		:: holds -> structure = 0; holds = 0
		:: else -> skip
		fi
	}
}

/* A settled word is read, then verified; one that has changed meanwhile was
   perhaps swung to another place of the same record, so it is read again. */
inline find(ix, k, slot, w, is_open)
{
	slot = 0;
	do
	:: slot == SLOTS -> w = 0; break
	:: else -> TOGETHER {
		w = indexes[ix].word[slot];
		if
		:: !MAY_BE_OF(w, k) || IS_TENTATIVE(w) -> slot++
		:: MAY_BE_OF(w, k) && !IS_TENTATIVE(w) &&
		   IS_LIVE(ix, w) &&
		   (IS_OF(w, k) || (is_open && IS_OPEN_OF(w, k))) -> break
		:: else ->
			if
			:: indexes[ix].word[slot] == w -> slot++
			:: else -> skip
			fi
		fi }
	od
}

inline swap(ix, slot, from, to, did)
{
	atomic {
		did = (indexes[ix].word[slot] == from);
		if
		:: did -> indexes[ix].word[slot] = to
		:: else -> skip
		fi
	}
}

/* A new tail, and the oldest segment goes. */
inline roll(ix)
{
	take_structure();
	if
	:: !holds || current != ix || indexes[ix].retired -> skip
	:: else -> roll_locked(ix)
	fi;
	leave_structure()
}

inline roll_locked(ix)
{
	if
	:: next_number > SEGMENTS -> skip	/* the model's end */
	:: else ->
		r_new = next_number;
		next_number++;
		file[r_new] = 1;
		MAY_DIE;
		indexes[ix].tail = r_new * UNITS;
		MAY_DIE;
		d_step {
			r_old = 1;
			do
			:: file[r_old] -> break
			:: else -> r_old++
			od
		}
		if
		:: r_old + 1 < r_new -> evict(ix)
		:: else -> skip
		fi
	fi
}

inline evict(ix)
{
	r_slot = 0;
	do
	:: r_slot == SLOTS -> break
	:: else ->
		r_word = indexes[ix].word[r_slot];
		if
		:: r_word == 0 || SEGMENT(PLACE(r_word)) != r_old -> skip
		:: else ->
			MAY_STOP;
			/* Any settled one may be used, and is copied then. */
			r_did = 0;
			if
			:: true -> skip
			:: !IS_TENTATIVE(r_word) && IS_SOUND(PLACE(r_word)) ->
				r_place = 0;
				atomic {
					if
					:: indexes[ix].tail != 0 &&
					   indexes[ix].tail / UNITS == r_new ->
						r_place = indexes[ix].tail;
						indexes[ix].tail =
						    (((r_place + 1) / UNITS ==
						      r_new) -> r_place + 1 : 0)
					:: else -> skip
					fi
				}
				if
				:: r_place != 0 ->
					assert(!whole[r_place]);
					key_of[r_place] =
						key_of[PLACE(r_word)];
					origin[r_place] =
						origin[PLACE(r_word)];
					flags[r_place] =
						flags[PLACE(r_word)] | COPY;
					whole[r_place] = 1;
					MAY_DIE;
					swap(ix, r_slot, r_word,
					     WORD(r_place, 0), r_did);
					/* What was replaced meanwhile. */
					if
					:: r_did -> skip
					:: else ->
						flags[r_place] = COPY | VOID
					fi
				:: else -> skip
				fi
			fi;
			if
			:: r_did -> skip
			:: else ->
				atomic {
					swap(ix, r_slot, r_word, 0, r_did);
					if
					:: r_did && whole[PLACE(r_word)] &&
					   !IS_TENTATIVE(r_word) &&
					   key_of[PLACE(r_word)] == 0 ->
						n_dropped++
					:: else -> skip
					fi
				}
			fi
		fi;
		r_slot++
	od;
	MAY_DIE;
	/* What came here since the pass goes, too. */
	atomic {
		r_slot = 0;
		do
		:: r_slot == SLOTS -> break
		:: else ->
			r_word = indexes[ix].word[r_slot];
			if
			:: r_word != 0 && SEGMENT(PLACE(r_word)) == r_old &&
			   !IS_TENTATIVE(r_word) &&
			   key_of[PLACE(r_word)] == 0 -> n_dropped++
			:: else -> skip
			fi;
			r_slot++
		od;
		if
		:: indexes[ix].min_live <= r_old ->
			indexes[ix].min_live = r_old + 1
		:: else -> skip
		fi
	}
	MAY_DIE;
	file[r_old] = 0
}

#ifdef BESIDE
#define NOTE_WRITER(place)	 writer[place] = rank; NOTE_REMOVED(ix)
#define NOTE_REMOVED(ix)	 n_removed = indexes[ix].n_removed
#define MAY_BE_REMOVED(ix)	 (indexes[ix].n_removed != n_removed)
#define IS_TAKEN(w)		 is_taken[writer[ORDER(w)]]
#else
#define NOTE_WRITER(place)	 skip
#define MAY_BE_REMOVED(ix)	 false
#define IS_TAKEN(w)		 REMOVES
#endif

/* Reserve and write; place 0: not now. */
inline write_record(ix, k, what, place)
{
	place = 0;
#ifdef IN_TURN
	n_begun >= rank || what == TOMBSTONE;
#endif
	atomic {
		if
		:: indexes[ix].tail != 0 ->
			place = indexes[ix].tail;
			indexes[ix].tail =
				(((place + 1) % UNITS) -> place + 1 : 0)
#ifdef IN_TURN
			;
			if
			:: n_begun == rank && what != TOMBSTONE -> n_begun++
			:: else -> skip
			fi
#endif
		:: else -> skip
		fi
	}
	if
	:: place == 0 -> roll(ix)
	:: else ->
		MAY_DIE;
		/* Nobody ever writes where something is. */
		assert(!whole[place]);
		atomic {
			key_of[place] = k;
			flags[place] = what;
			origin[place] = place;
			whole[place] = 1;
			NOTE_WRITER(place)
		}
	fi
}

#define OK     1
#define EXISTS 2
#define AGAIN  3
#define GIVE_UP 4

#ifndef LOOKS
#define LOOKS 8
#endif

/*
 * One look at both buckets: our own word, wherever an eviction brought it,
 * another's settled one, a newer one that a replacing put gives way to, the
 * lowest tentative one and one besides.
 * A word that has changed meanwhile was perhaps swung to another place of the
 * same record, so it is read again.
 */
inline scan(ix, k, place)
{
	d_step {
		own = SLOTS;
		own_word = 0;
		settled = SLOTS;
		settled_word = 0;
		lowest = SLOTS;
		lowest_word = 0;
		higher = SLOTS;
		higher_word = 0;
		unused = SLOTS;
		unused_word = 0;
		newer = SLOTS;
		slot = 0
	}
	do
	:: slot == SLOTS -> break
	:: else -> TOGETHER {
		w = indexes[ix].word[slot];
		if
		:: MAY_BE_OF(w, k) && IS_LIVE(ix, w) && IS_OF(w, k) -> atomic {
			if
			:: ORDER(w) == place -> own = slot; own_word = w
			:: ORDER(w) != place && !IS_TENTATIVE(w) ->
				if
				:: is_replacing && ORDER(w) > place ->
					newer = slot;
					newer_word = w
				:: else ->
					settled = slot;
					settled_word = w
				fi
			:: else -> skip
			fi;
			if
			:: !IS_TENTATIVE(w) -> skip
			:: IS_TENTATIVE(w) && lowest != SLOTS &&
			   ORDER(w) > ORDER(lowest_word) ->
				higher = slot;
				higher_word = w
			:: else ->
				higher = lowest;
				higher_word = lowest_word;
				lowest = slot;
				lowest_word = w
			fi;
			slot++ }
		:: MAY_BE_OF(w, k) && !(IS_LIVE(ix, w) && IS_OF(w, k)) &&
		   indexes[ix].word[slot] != w -> skip
		:: MAY_BE_OF(w, k) && IS_LIVE(ix, w) && !IS_OF(w, k) &&
		   indexes[ix].word[slot] == w -> slot++
		:: !MAY_BE_OF(w, k) && IS_LIVE(ix, w) -> slot++
		:: !IS_LIVE(ix, w) &&
		   (!MAY_BE_OF(w, k) || indexes[ix].word[slot] == w) ->
			if
			:: unused = slot; unused_word = w
			:: unused != SLOTS && ANY_SLOT -> skip
			fi;
			slot++
		fi }
	od;
	is_out = (own != SLOTS);
	out_in = (is_out -> ix + 1 : out_in)
}

/* What is written is of no use; where a word leads to it, it stays. */
inline forget(place)
{
	if
	:: place != 0 && !is_out -> flags[place] = flags[place] | VOID
	:: else -> skip
	fi;
	place = 0;
	out_in = 0;
	is_over = 0
}

/* Into a free or dead slot, else one of another key's: what is there goes. */
inline publish(ix, k, fresh)
{
	if
	:: unused != SLOTS ->
		own = unused;
		w = unused_word
	:: else ->
		if
		:: own = 0
		:: own = SLOTS - 1
		fi;
		w = indexes[ix].word[own]
	fi;
	if
	:: unused == SLOTS && w != 0 && key_of[PLACE(w)] == k -> did = 0
	:: else -> atomic {
		swap(ix, own, w, fresh, did);
		if
		:: did && w != 0 && !IS_TENTATIVE(w) &&
		   key_of[PLACE(w)] == 0 && (k != 0 || !IS_LIVE(ix, w)) ->
			n_dropped++
		:: else -> skip
		fi }
	fi
}

/*
 * Create-only, without a lock.  The word is tentative until someone, its writer
 * or another create-only put of the key, has settled it:
 *
 *	another's settled one	ours goes: EXISTS
 *	several tentative ones	all but the lowest are cleared
 *	one tentative one	settled by compare-and-swap, if the same word was
 *				there before this look began: OK or EXISTS
 *	none			ours goes out; but if it was out before, the
 *				record is written anew, so that no word is ever
 *				the same as one that was there before, unless
 *				something was removed since: then it is over, or
 *				given up if it may not have been out in this index
 */
inline create(ix, k, place, answer)
{
	answer = 0;
	looks = 0;
	seen = SLOTS;
	seen_word = 0;
	do
	:: answer != 0 -> break
	:: answer == 0 && looks == LOOKS ->
		if
		:: is_out ->
			swap(ix, published_at, WORD(place, 1), 0, did);
			is_out = !did
		:: else -> skip
		fi;
		answer = GIVE_UP
	:: else ->
		looks++;
		scan(ix, k, place);
		MAY_DIE;
		if
		:: own != SLOTS && !IS_TENTATIVE(own_word) -> answer = OK
		:: own == SLOTS && settled != SLOTS ->
			answer = EXISTS
		:: own != SLOTS && IS_TENTATIVE(own_word) && settled != SLOTS ->
			swap(ix, own, own_word, 0, did);
			if
			:: did -> is_out = 0; answer = EXISTS
			:: else -> skip
			fi
		:: settled == SLOTS && higher != SLOTS ->
			swap(ix, higher, higher_word, 0, did)
		:: settled == SLOTS && higher == SLOTS && lowest != SLOTS &&
		   !(own != SLOTS && !IS_TENTATIVE(own_word)) ->
			if
			:: seen == lowest && seen_word == lowest_word ->
				swap(ix, lowest, lowest_word,
				     WORD(PLACE(lowest_word), 0), did);
				if
				:: did && own != SLOTS -> answer = OK
				:: did && own == SLOTS ->
					answer = EXISTS;
					/* Evicted before it was settled. */
					if
					:: IS_LIVE(ix, lowest_word) -> skip
					:: else -> n_dropped++
					fi
				:: else -> skip
				fi
			:: else ->
				seen = lowest;
				seen_word = lowest_word
			fi
		:: own == SLOTS && settled == SLOTS && lowest == SLOTS &&
		   out_in != 0 ->
			if
			:: MAY_BE_REMOVED(ix) && out_in == ix + 1 ->
				is_over = 1;
				answer = OK
			:: MAY_BE_REMOVED(ix) && out_in != ix + 1 ->
				place = 0;
				answer = GIVE_UP
			:: else ->
				forget(place);
				answer = AGAIN
			fi
		:: own == SLOTS && settled == SLOTS && lowest == SLOTS &&
		   out_in == 0 ->
			publish(ix, k, WORD(place, 1));
			if
			:: did ->
				out_in = ix + 1;
				is_out = 1;
				published_at = own;
				seen = own;
				seen_word = WORD(place, 1)
			:: else -> skip
			fi
		fi
	od
}

/*
 * Replacing: settled at once, where a word of the key is in its place.  To one
 * that is later by its order it gives way, and is replaced by that, unless that
 * says that it found nothing: then ours is the later one, and written anew.
 */
inline replace(ix, k, place, answer)
{
	answer = 0;
	looks = 0;
	do
	:: answer != 0 -> break
	:: answer == 0 && looks == LOOKS -> answer = GIVE_UP
	:: else ->
		looks++;
		scan(ix, k, place);
		MAY_DIE;
		if
		:: newer == SLOTS && settled == SLOTS ->
			settled = lowest;
			settled_word = lowest_word
		:: else -> skip
		fi;
		if
		:: own == SLOTS && out_in == ix + 1 -> is_over = 1; answer = OK
		:: own == SLOTS && out_in != ix + 1 && out_in != 0 &&
		   !is_over && MAY_BE_REMOVED(ix) ->
			place = 0;
			answer = GIVE_UP
		:: own == SLOTS && out_in != ix + 1 && is_over &&
		   (newer != SLOTS || settled == SLOTS) -> answer = OK
		:: own == SLOTS && out_in != ix + 1 && is_over &&
		   newer == SLOTS && settled != SLOTS && MAY_BE_REMOVED(ix) ->
			/* So may what it had replaced. */
			if
			:: ORDER(settled_word) > place -> answer = OK
			:: else -> swap(ix, settled, settled_word, 0, did)
			fi
		:: else -> give_way_or_take(ix, k, place, answer)
		fi
	od
}

inline give_way_or_take(ix, k, place, answer)
{
	if
	:: newer != SLOTS ->
		did = 1;
		if
		:: own != SLOTS -> swap(ix, own, own_word, 0, did)
		:: else -> skip
		fi;
		if
		:: did ->
			is_out = 0;
			forget(place);
			answer = (IS_REPLACING(newer_word) -> OK : AGAIN)
		:: else -> skip
		fi
	:: newer == SLOTS && settled == SLOTS && own != SLOTS -> answer = OK
	:: newer == SLOTS && settled == SLOTS && own == SLOTS ->
		publish(ix, k, WORD(place, 0));
		if
		:: did -> out_in = ix + 1; is_out = 1
		:: else -> skip
		fi
	:: newer == SLOTS && settled != SLOTS &&
	   SEGMENT(PLACE(settled_word)) > SEGMENT(place) ->
		/* It was carried: ours would go before it. */
		forget(place);
		answer = AGAIN
	:: newer == SLOTS && settled != SLOTS && own != SLOTS &&
	   SEGMENT(PLACE(settled_word)) <= SEGMENT(place) ->
		swap(ix, settled, settled_word, 0, did)
	:: newer == SLOTS && settled != SLOTS && own == SLOTS &&
	   SEGMENT(PLACE(settled_word)) <= SEGMENT(place) ->
		atomic {
			swap(ix, settled, settled_word, WORD(place, 0), did);
			if
			:: did -> out_in = ix + 1; is_out = 1; is_over = 0
			:: else -> skip
			fi
		}
	fi
}

inline wipe_locked(ix)
{
	indexes[ix].retired = WIPED;
	r_slot = 1;
	do
	:: r_slot > SEGMENTS -> break
	:: else -> file[r_slot] = 0; r_slot++; MAY_DIE
	od;
	MAY_STOP;
	atomic {
		r_new = n_indexes;
		n_indexes++;
		indexes[r_new].min_live = next_number;
		indexes[r_new].tail = 0
	}
	MAY_DIE;
	current = r_new
}

/* Wait for whoever grows or wipes; one who died on the way left the mark. */
inline mend(ix)
{
	take_structure();
	if
	:: !holds -> answer = GIVE_UP
	:: holds && current == ix && indexes[ix].retired == GROWN ->
		indexes[ix].retired = 0
	:: holds && current == ix && indexes[ix].retired == WIPED ->
		wipe_locked(ix)
	:: else -> skip
	fi;
	leave_structure()
}

/* Its segment was evicted: carried over, or gone with it?  If its word is there
   it was not taken out before that. */
inline check_live(ix, k, place, answer)
{
	scan(ix, k, place);
	if
	:: own != SLOTS -> skip
	:: else ->
		atomic {
			swap(ix, 0, WORD(place, 0), 0, did);
			if
			:: did -> skip
			:: else -> swap(ix, 1, WORD(place, 0), 0, did)
			fi
		};
		if
		:: did -> forget(place); answer = AGAIN
		:: else -> is_over = 1
		fi
	fi
}

/* Published again in the next index; but what was out and is gone was replaced
   or removed, and then only takes the place of what is older. */
inline follow(ix, k, is_replacing, place, answer)
{
	if
	:: answer == OK && place != 0 ->
		scan(ix, k, place);
		if
		:: own == SLOTS -> is_over = 1
		:: else -> skip
		fi
	:: else -> skip
	fi;
	if
	:: is_over && (!is_replacing || indexes[ix].retired != GROWN) ->
		answer = OK
	:: else -> answer = AGAIN
	fi
}

/* What both do around it. */
inline put(k, is_replacing)
{
	tries = 0;
	place = 0;
	answer = AGAIN;
	do
	:: answer != AGAIN -> break
	:: answer == AGAIN && tries == TRIES -> answer = GIVE_UP; break
	:: else ->
		tries++;
		ix = current;
		if
		:: indexes[ix].retired -> mend(ix)
		:: else ->
			if
			:: is_replacing || out_in != 0 -> skip
			:: else ->
				find(ix, k, slot, w, 0);
				if
				:: w != 0 -> answer = EXISTS
				:: else -> skip
				fi
			fi;
			if
			:: answer == AGAIN && place == 0 ->
				write_record(ix, k,
					     (is_replacing -> REPLACES : 0),
					     place)
			:: else -> skip
			fi;
			if
			:: answer != AGAIN -> skip
			:: answer == AGAIN && (place == 0 || (out_in == 0 &&
			   SEGMENT(place) < indexes[ix].min_live)) ->
				forget(place)
			:: else ->
				if
				:: is_replacing -> replace(ix, k, place, answer)
				:: else -> create(ix, k, place, answer)
				fi;
				if
				:: (answer == OK || answer == EXISTS) &&
				   indexes[ix].retired ->
					follow(ix, k, is_replacing, place,
					       answer)
				:: else ->
					if
					:: answer == OK && place != 0 &&
					   !is_over && SEGMENT(place) <
					   indexes[ix].min_live ->
						check_live(ix, k, place, answer)
					:: answer == EXISTS || answer == GIVE_UP ->
						forget(place)
					:: else -> skip
					fi
				fi;
				/* Those are of another store. */
				if
				:: indexes[ix].retired > GROWN ->
					place = 0;
					out_in = 0
				:: else -> skip
				fi
			fi
		fi
	od
}

/* Clear every word of the key, slot by slot; again where the index was retired. */
inline clear_words(ix)
{
	slot = 0;
	do
	:: slot == SLOTS -> break
	:: else ->
		w = indexes[ix].word[slot];
		if
		:: IS_LIVE(ix, w) && IS_OF(w, 0) ->
#ifdef BESIDE
			indexes[ix].n_removed++;
#endif
			atomic {
			swap(ix, slot, w, 0, did);
			has_removed = has_removed || did;
#ifdef BESIDE
			/* Not what eviction let go before, nor in an index that
			   is no more the store's: it is done in the next. */
			if
			:: did && IS_LIVE(ix, w) && !indexes[ix].retired ->
				is_taken[writer[ORDER(w)]] = 1
			:: else -> skip
			fi
#endif
			}
		:: else ->
			if
			:: indexes[ix].word[slot] == w -> slot++
			:: else -> skip
			fi
		fi
	od
}

/* So that an index made anew does not find it. */
inline write_tombstone(ix)
{
	place = 0;
	tries = 0;
	do
	:: place != 0 || tries == 2 || indexes[ix].retired -> break
	:: else ->
		tries++;
		write_record(ix, 0, TOMBSTONE, place)
	od
}

inline remove()
{
	do
	:: ix = current;
	   clear_words(ix);
	   if
	   :: has_removed && !indexes[ix].retired -> write_tombstone(ix)
	   :: else -> skip
	   fi;
	   if
	   :: indexes[ix].retired -> skip
	   :: else -> break
	   fi
	od;
	atomic { is_removed = 1; is_buried = has_removed }
}

proctype putter(byte k; bit is_replacing; byte rank)
{
	byte ix, place, answer, slot, own, own_word, w, tries, looks;
	byte settled, settled_word, lowest, lowest_word, higher, higher_word;
	byte unused, unused_word, seen, seen_word, published_at;
	byte newer, newer_word;
	byte out_in;	/* 1 + the last index where its word was; 0: none */
#ifdef BESIDE
	byte n_removed;	/* as the index had it before */
#endif
	bit is_out, is_over;
	byte r_new, r_old, r_slot, r_word, r_place;
	bit did, r_did, holds;
#ifdef REMOVE_FIRST
	bit has_removed;

	if
	:: is_replacing -> skip
	:: else -> remove()
	fi;
#endif
	put(k, is_replacing);
	atomic {
		if
		:: answer == GIVE_UP -> n_given_up++
		:: answer == OK && k == 1 -> n_other++
		:: answer == OK && k == 0 && is_replacing -> n_replaced++
		:: answer == OK && k == 0 && !is_replacing -> n_created++
		:: answer == EXISTS && k == 0 -> n_exists++
		:: answer == EXISTS && k == 1 -> skip
		fi
#ifdef IN_TURN
		;
		/* It may have taken none. */
		if
		:: n_begun == rank -> n_begun++
		:: else -> skip
		fi
#endif
	};
dead:	leave_structure();
stopped:
	n_running--
}

/* ---- The others ------------------------------------------------------------- */

proctype roller()
{
	byte ix;
	byte r_new, r_old, r_slot, r_word, r_place;
	bit r_did, holds;

	ix = current;
	roll(ix);
dead:	leave_structure();
stopped:
	n_running--
}

inline carry(ix, next)
{
	c_slot = 0;
	do
	:: c_slot == SLOTS -> break
	:: else ->
		c_word = indexes[ix].word[c_slot];
		if
		:: c_word == copied[c_slot] -> skip
		:: else ->
			/* The new one is nobody else's yet. */
			indexes[next].word[c_slot] = c_word;
			copied[c_slot] = c_word
		fi;
		c_slot++
	od
}

proctype grower()
{
	byte ix, next, tail, c_slot, c_word;
	byte copied[SLOTS];
	bit holds;

	take_structure();
	ix = current;
	if
	:: !holds || indexes[ix].retired || n_indexes == 3 -> skip
	:: else ->
		atomic { next = n_indexes; n_indexes++ }
		atomic { tail = indexes[ix].tail; indexes[ix].tail = 0 }
		carry(ix, next);
		MAY_DIE;
		indexes[ix].retired = GROWN;
		MAY_DIE;
		MAY_STOP;
		carry(ix, next);
		MAY_DIE;
#ifdef BESIDE
		indexes[next].n_removed = indexes[ix].n_removed;
#endif
		indexes[next].min_live = indexes[ix].min_live;
		indexes[next].tail = tail;
		current = next
	fi;
dead:	leave_structure();
stopped:
	n_running--
}

proctype wiper()
{
	byte ix, r_new, r_slot;
	bit holds;

	take_structure();
	ix = current;
	if
	:: !holds || n_indexes == 3 -> skip
	:: else -> wipe_locked(ix); is_wiped = 1
	fi;
dead:	leave_structure();
stopped:
	n_running--
}

proctype remover()
{
	byte ix, slot, w, place, tries;
	byte r_new, r_old, r_slot, r_word, r_place;
	bit did, r_did, holds, has_removed;
	byte rank = PUTS;	/* no put's */
#ifdef BESIDE
	byte n_removed;
#endif

	remove();
dead:	leave_structure();
stopped:
	n_running--
}

/* What one record did, done again, in an index of our own in which each key has
   a slot.  What was carried over is what the index led to. */
#define COUNTS(place)	(flags[place] & (REPLACES + COPY))
inline replay(index, place)
{
	l_key = key_of[place];
	if
	:: !IS_SOUND(place) || !file[SEGMENT(place)] || l_key >= SLOTS -> skip
	:: else ->
		l_word = index.word[l_key];
		if
		:: flags[place] & TOMBSTONE ->
			if
			:: l_word != 0 && ORDER(l_word) < origin[place] ->
				index.word[l_key] = 0
			:: else -> skip
			fi;
			if
			:: l_removed[l_key] < origin[place] ->
				l_removed[l_key] = origin[place]
			:: else -> skip
			fi
		:: else ->
			if
			:: origin[place] < l_removed[l_key] -> skip
			:: else ->
				if
				:: l_word == 0 ||
				   (COUNTS(place) &&
				    (!COUNTS(PLACE(l_word)) ||
				     ORDER(l_word) <= origin[place])) ||
				   (!COUNTS(place) &&
				    !COUNTS(PLACE(l_word)) &&
				    origin[place] < ORDER(l_word)) ->
					index.word[l_key] = WORD(place, 0)
				:: else -> skip
				fi
			fi
		fi
	fi
}

/* Segment by segment. */
inline replay_all(index)
{
	l_place = UNITS;
	do
	:: l_place == PLACES -> break
	:: else ->
		d_step {
			replay(index, l_place);
			l_key = 0;
			l_word = 0;
			l_place++
		}
	od
}

/* Who finds that the index is damaged, says so to those who have it, and makes
   another. */
proctype loser()
{
	byte ix, next, l_place, l_key, l_word;
	byte l_removed[SLOTS];
	bit holds;

	take_structure();
	ix = current;
	if
	:: !holds || indexes[ix].retired || n_indexes == 3 -> skip
	:: else ->
		atomic { next = n_indexes; n_indexes++ }
		indexes[ix].retired = LOST;
		replay_all(indexes[next]);
		l_place = 1;
		d_step {
			do
			:: file[l_place] || l_place == SEGMENTS -> break
			:: else -> l_place++
			od;
			indexes[next].min_live = l_place;
			next_number = SEGMENTS;
			do
			:: file[next_number] || next_number == 0 -> break
			:: else -> next_number--
			od;
			next_number++
		}
		current = next
	fi;
	leave_structure();
	n_running--
}

proctype reader(byte k)
{
	byte ix, slot, w;
	bit was_replaced, was_wiped, was_removed;

	/* What it has mapped, unless that says that it was replaced. */
	was_replaced = n_replaced > 0;
	was_wiped = is_wiped;
	was_removed = is_removed;
	ix = 0;
	if
	:: indexes[ix].retired -> ix = current
	:: else -> skip
	fi;
	find(ix, k, slot, w, 1);
	if
	:: w != 0 ->
		/* The bytes are another access. */
		assert(whole[PLACE(w)] && key_of[PLACE(w)] == k);
		atomic {
			/* With creators alone all read the same, but for those
			   whose index was replaced meanwhile. */
			assert(indexes[ix].retired || ix != current ||
			       was_read == 0 || was_read == ORDER(w) ||
			       REPLACERS || REMOVES || WIPERS || n_dropped);
			if
			:: indexes[ix].retired -> skip
			:: else -> was_read = ORDER(w)
			fi;
			/* What was there before a replacing put is over. */
			assert(!was_replaced || CREATORS ||
			       IS_REPLACING(w));
			/* So is what was there before a wipe. */
			assert(!was_wiped || CREATORS || REPLACERS);
			/* And what was removed. */
			assert(!was_removed || !IS_TAKEN(w))
		}
	:: else -> skip
	fi;
	n_running--
}

/* ---- Begin and end ----------------------------------------------------------- */

init {
	byte slot, w, n, found, l_place, l_key, l_word;
	byte l_removed[SLOTS];

	atomic {
		indexes[0].min_live = 1;
		indexes[0].tail = 1 * UNITS;
		file[1] = 1;
#ifdef BEFORE
		whole[UNITS] = 1;
		key_of[UNITS] = 0;
		indexes[0].word[0] = WORD(UNITS, 0);
		indexes[0].tail = (UNITS > 1 -> UNITS + 1 : 0);
		origin[UNITS] = UNITS;
#ifdef BESIDE
		writer[UNITS] = PUTS;
#endif
#endif
#ifdef CROWD
		whole[UNITS] = 1;
		whole[UNITS + 1] = 1;
		key_of[UNITS] = 1;
		key_of[UNITS + 1] = 2;
		indexes[0].word[0] = WORD(UNITS, 0);
		indexes[0].word[1] = WORD(UNITS + 1, 0);
		indexes[0].tail = (UNITS > 2 -> UNITS + 2 : 0);
#endif
		n = 0;
		do :: n == CREATORS -> break
		   :: else -> n_running++; run putter(0, 0, n); n++ od;
		n = 0;
		do :: n == REPLACERS -> break
		   :: else -> n_running++; run putter(0, 1, CREATORS + n); n++ od;
		n = 0;
		do :: n == OTHERS -> break
		   :: else -> n_running++; run putter(1, 0, CREATORS + REPLACERS + n);
		n++ od;
		n = 0;
		do :: n == ROLLERS -> break
		   :: else -> n_running++; run roller(); n++ od;
		n = 0;
		do :: n == GROWERS -> break
		   :: else -> n_running++; run grower(); n++ od;
		n = 0;
		do :: n == WIPERS -> break
		   :: else -> n_running++; run wiper(); n++ od;
		n = 0;
		do :: n == REMOVERS -> break
		   :: else -> n_running++; run remover(); n++ od;
		n = 0;
		do :: n == LOSERS -> break
		   :: else -> n_running++; run loser(); n++ od;
		n = 0;
		do :: n == READERS -> break
		   :: else -> n_running++; run reader(0); n++ od
	}
	n_running == 0;

	/* Of one key there is one entry, once all puts are over. */
	atomic {
		n = 0;
		slot = 0;
		do
		:: slot == SLOTS -> break
		:: else ->
			w = indexes[current].word[slot];
			if
			:: IS_LIVE(current, w) && IS_OF(w, 0) &&
			   !IS_TENTATIVE(w) -> n++
			:: else -> skip
			fi;
			slot++
		od
	}
	assert(n <= 1 || n_killed || n_given_up);
#ifdef PATIENT
	assert(!n_given_up);
#endif

	/* What a look-up finds now. */
	find(current, 0, slot, w, 0);

	/* One create-only put wins, whoever dies; none where one was there. */
#ifdef BEFORE
	assert(n_created == 0 || REMOVES || WIPERS || n_dropped);
#else
	assert(n_created <= 1 || REMOVES || WIPERS || n_dropped);
#endif
#if CREATORS > 0 && REPLACERS == 0
#ifndef BEFORE
	/* One of them wins, unless one died or the index was lost: then its
	   entry may be the one. */
	assert(n_created > 0 || n_given_up || n_killed || LOSERS);
#endif
	assert(w == 0 || was_read == 0 || was_read == ORDER(w) ||
	       REMOVES || WIPERS || LOSERS || n_dropped);
#endif
	/* Those who were told that it is there find it, if nothing let it go,
	   whoever died. */
	assert(!(n_created + n_replaced + n_exists > 0) || w != 0 || REMOVES ||
	       WIPERS || n_dropped);
	/* Nor is there what was before a replacing put. */
	assert(!n_replaced || w == 0 || CREATORS || IS_REPLACING(w));
	/* What was removed does not come back. */
	assert(!is_removed || w == 0 || !IS_TAKEN(w));

	/* Were the index lost now, what would one made anew lead to? */
	found = w;
	lost.word[0] = 0;
	replay_all(lost);
	w = lost.word[0];
	/* Nothing that was removed, wiped or replaced. */
	assert(!is_buried || w == 0 || n_stopped || !IS_TAKEN(w));
	assert(!is_wiped || w == 0 || CREATORS || REPLACERS);
	assert(!n_replaced || w == 0 || CREATORS || IS_REPLACING(w));
	/* What this one leads to, but for puts that were not done. */
	assert(found == 0 || n_killed || n_stopped || n_given_up ||
	       CREATORS || (REMOVES && w == 0) || ORDER(w) == ORDER(found))
}
