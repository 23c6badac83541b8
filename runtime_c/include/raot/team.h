/* SPDX-License-Identifier: Apache-2.0 */
/* team.h - threads that share the iterations of loops. */
#ifndef RAOT_TEAM_H
#define RAOT_TEAM_H

#include <stddef.h>
#include <stdint.h>

#if defined(__STDC_NO_ATOMICS__) || defined(__cplusplus)
#error "raot/team.h needs the atomics of C11"
#endif
#include <stdatomic.h>

/* How often a thread looks for a change before it waits. */
#ifndef RAOT_TEAM_SPINS
#define RAOT_TEAM_SPINS 4000
#endif

/* Between two looks. Without wait and wake, define it to sleep until an event (WFE). */
#ifndef RAOT_TEAM_PAUSE
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
#define RAOT_TEAM_PAUSE() __builtin_ia32_pause()
#elif defined(__GNUC__) && defined(__ARM_ARCH) && __ARM_ARCH >= 7
#define RAOT_TEAM_PAUSE() __asm volatile("yield")
#else
#define RAOT_TEAM_PAUSE() ((void)0)
#endif
#endif

/* After a change, where wait and wake are not set: define it to send an event (SEV). */
#ifndef RAOT_TEAM_SIGNAL
#define RAOT_TEAM_SIGNAL() ((void)0)
#endif

/* Runs iterations first to last - 1; `worker` is 0 in the thread that called the run. */
typedef void (*raot_chunk)(const void *loop, int32_t first, int32_t last, int32_t worker);

/*
 * The threads of one memory. Set everything to zero before the first use, then the hooks, which
 * may stay null: the threads then do not sleep.
 */
struct raot_team {
    /* Blocks until ready(team, seen) is not 0; it may look again only after each wake. */
    void (*wait)(struct raot_team *team, int (*ready)(struct raot_team *team, uint32_t seen),
                 uint32_t seen);
    /* Makes every thread in wait look again. */
    void (*wake)(struct raot_team *team);
    /* For the hooks. */
    void *context;

    /* The loop that is open, written while no worker is inside. */
    raot_chunk chunk;
    const void *loop;
    int32_t start;
    int32_t stop;
    int32_t length; /* of a chunk */
    uint32_t chunks;
    uint32_t number; /* of loops so far */

    _Atomic uint32_t open;    /* the number of the open loop, or 0 */
    _Atomic uint32_t next;    /* the next chunk */
    _Atomic uint32_t inside;  /* workers that may touch the loop */
    _Atomic uint32_t waiting; /* threads that wait, or are about to */
    _Atomic uint32_t present; /* a bit for each worker */
    _Atomic uint32_t stopped;
};

/* Waits until ready says so: a few looks at first, then the hook. */
static inline void raot_team_wait(struct raot_team *team,
                                  int (*ready)(struct raot_team *team, uint32_t seen),
                                  uint32_t seen)
{
    for (int32_t look = 0; look < RAOT_TEAM_SPINS; look++) {
        if (ready(team, seen) != 0) {
            return;
        }
        RAOT_TEAM_PAUSE();
    }
    if (team->wait == NULL) {
        while (ready(team, seen) == 0) {
            RAOT_TEAM_PAUSE();
        }
        return;
    }
    (void)atomic_fetch_add(&team->waiting, 1u);
    team->wait(team, ready, seen);
    (void)atomic_fetch_sub(&team->waiting, 1u);
}

/* Something changed that threads may wait for. */
static inline void raot_team_changed(struct raot_team *team)
{
    if (team->wake == NULL) {
        RAOT_TEAM_SIGNAL();
    } else if (atomic_load(&team->waiting) > 0u) {
        team->wake(team);
    } else {
        /* No thread waits. */
    }
}

/* 1 if a loop is open that is not the one seen, or no loop will follow. */
static inline int raot_team_has_work(struct raot_team *team, uint32_t seen)
{
    const uint32_t open = atomic_load(&team->open);

    return (open != 0u && open != seen) || atomic_load(&team->stopped) != 0u;
}

/* 1 if no worker is inside the loop. */
static inline int raot_team_is_left(struct raot_team *team, uint32_t seen)
{
    (void)seen;
    return atomic_load(&team->inside) == 0u;
}

/* Takes chunks of the open loop until none is left. */
static inline void raot_team_take(struct raot_team *team, int32_t worker)
{
    uint32_t chunk = atomic_fetch_add(&team->next, 1u);

    while (chunk < team->chunks) {
        const int32_t first = team->start + (int32_t)chunk * team->length;
        const int32_t rest = team->stop - first;

        team->chunk(team->loop, first, rest < team->length ? team->stop : first + team->length,
                    worker);
        chunk = atomic_fetch_add(&team->next, 1u);
    }
}

/*
 * Runs iterations start to stop - 1, `length` at a time, by all threads of the team that are
 * there, and returns when all of them are done. `team` may be null: the caller runs them all.
 */
static inline void raot_parallel(struct raot_team *team, raot_chunk chunk, const void *loop,
                                 int32_t start, int32_t stop, int32_t length)
{
    if (stop <= start) {
        return;
    }
    if (team == NULL || stop - start <= length || atomic_load(&team->present) == 0u) {
        chunk(loop, start, stop, 0);
        return;
    }
    team->chunk = chunk;
    team->loop = loop;
    team->start = start;
    team->stop = stop;
    team->length = length;
    team->chunks = ((uint32_t)(stop - start) - 1u) / (uint32_t)length + 1u;
    team->number = team->number == UINT32_MAX ? 1u : team->number + 1u;
    atomic_store(&team->next, 0u);
    atomic_store(&team->open, team->number);
    raot_team_changed(team);
    raot_team_take(team, 0);
    atomic_store(&team->open, 0u);
    raot_team_wait(team, raot_team_is_left, 0u);
}

/*
 * Runs chunks as a worker, 1 to 31, until the team is stopped. Returns 0, or -1 where another
 * thread is this worker.
 */
static inline int raot_team_work(struct raot_team *team, int32_t worker)
{
    const uint32_t bit = UINT32_C(1) << worker;
    uint32_t seen = 0u;

    if ((atomic_fetch_or(&team->present, bit) & bit) != 0u) {
        return -1;
    }
    for (;;) {
        uint32_t open = 0u;

        raot_team_wait(team, raot_team_has_work, seen);
        if (atomic_load(&team->stopped) != 0u) {
            break;
        }
        (void)atomic_fetch_add(&team->inside, 1u);
        open = atomic_load(&team->open);
        if (open != 0u) {
            raot_team_take(team, worker);
            seen = open;
        }
        if (atomic_fetch_sub(&team->inside, 1u) == 1u) {
            raot_team_changed(team);
        }
    }
    (void)atomic_fetch_and(&team->present, ~bit);
    return 0;
}

/* Lets all workers return after the chunk that they are in. */
static inline void raot_team_stop(struct raot_team *team)
{
    atomic_store(&team->stopped, 1u);
    raot_team_changed(team);
}

#endif
