/* An allocator of pages as a guest of mmscale: `--policy caches=guest:./allocator.so`.
 *
 * The guest exports six functions. It has the free pages of one zone, numbered from 0; watermarks,
 * counters and the record of each page stay with the host. All CPUs may call it at a time, but for
 * the first two functions.
 *
 * On a simulated machine a lock, a touch of a line and a named piece of work take the time of the
 * machine's profile. The rest of the guest's code takes none, so a guest that does not name what it
 * does looks faster than it is. Atomic instructions of its own are exact in their effect and free in
 * their cost. On threads all of it takes the time that it takes.
 *
 * The same as `mmscale_frames::guest`. */

#ifndef MMSCALE_GUEST_H
#define MMSCALE_GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Locks that CPUs share have numbers below this. The lock `MMS_SHARED_LOCKS + cpu` is that of a
 * CPU, for what it keeps. A lock is taken with interrupts off; the lock taken last is
 * released first. Reports name the first kind `zone`, the second `pcp`. */
#define MMS_SHARED_LOCKS 16

/* No page. */
#define MMS_NO_PAGE UINT64_MAX

/* Work that the guest names. */
enum mms_work {
    MMS_CACHE_TAKE, /* taking a block from a CPU's own pages */
    MMS_CACHE_PUT,  /* putting one there */
    MMS_LIST_TAKE,  /* unlinking a block from a shared list */
    MMS_LIST_PUT,   /* linking one into it */
    MMS_STEP,       /* splitting a block, or merging two */
};

/* What the guest may call, with `host` as the first argument. */
struct mms_host {
    const void *host;
    uint32_t (*cpu)(void); /* stays the same while the guest has a lock */
    void (*lock)(const void *host, uint32_t lock);
    void (*unlock)(const void *host, uint32_t lock);
    void (*touch_page)(const void *host, uint64_t page, bool writes); /* the record of a page */
    void (*touch_list)(const void *host, uint32_t list, bool writes); /* a list head, 0 to 15 */
    void (*work)(const void *host, uint32_t work, uint32_t count);
};

/* The bytes of memory that the guest needs. */
size_t mms_guest_bytes(uint64_t pages, uint32_t cpus);
/* Makes an allocator in `memory`, which is 0 and aligned to 128: all pages are free. `host` stays. */
void mms_guest_init(void *memory, uint64_t pages, uint32_t cpus, const struct mms_host *host);
/* Allocates 2^order pages, aligned to their number; kind 0: unmovable, 1: movable, 2: reclaimable.
 * Returns the first, or MMS_NO_PAGE. */
uint64_t mms_guest_alloc(void *memory, uint32_t order, uint32_t kind);
/* Frees a block. */
void mms_guest_free(void *memory, uint64_t page, uint32_t order);
/* Drains a CPU's cache: its pages are there for all. Returns their number. Any CPU calls it. */
uint64_t mms_guest_drain(void *memory, uint32_t cpu);
/* The number of free pages, those that CPUs keep included; nothing else is called meanwhile. */
uint64_t mms_guest_count_free(void *memory);

#endif
