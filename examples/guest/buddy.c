/* A guest allocator: a buddy allocator under one lock, with a small cache of single pages for each
 * CPU. `cc -shared -fPIC -O2 -I crates/frames/include -o buddy.so examples/guest/buddy.c`, then
 * `mmscale run pcp --policy caches=guest:./buddy.so`. */

#include "mmscale_guest.h"

#define ORDERS 11
#define BATCH 31
#define MOST (4 * BATCH)
#define NONE UINT32_MAX
#define ZONE_LOCK 0

/* The record of a page. Of a free block only the first page's is used. */
struct page {
    uint32_t next, before;
    uint8_t order;
    bool is_free; /* on a list of the zone */
};

struct cache {
    uint32_t count;
    uint32_t pages[MOST];
    char padding[128];
};

struct buddy {
    const struct mms_host *host;
    uint64_t pages, free;
    uint32_t cpus;
    uint32_t lists[ORDERS];
    struct page *page;
    struct cache caches[];
};

size_t mms_guest_bytes(uint64_t pages, uint32_t cpus) {
    return sizeof(struct buddy) + cpus * sizeof(struct cache) + pages * sizeof(struct page);
}

static void link_block(struct buddy *b, uint32_t first, uint32_t order) {
    struct page *page = &b->page[first];
    b->host->work(b->host->host, MMS_LIST_PUT, 1);
    b->host->touch_list(b->host->host, order, true);
    b->host->touch_page(b->host->host, first, true);
    page->order = order;
    page->is_free = true;
    page->before = NONE;
    page->next = b->lists[order];
    if (page->next != NONE) {
        b->page[page->next].before = first;
        b->host->touch_page(b->host->host, page->next, true);
    }
    b->lists[order] = first;
    b->free += 1u << order;
}

static void unlink_block(struct buddy *b, uint32_t first) {
    struct page *page = &b->page[first];
    b->host->work(b->host->host, MMS_LIST_TAKE, 1);
    b->host->touch_page(b->host->host, first, true);
    if (page->before == NONE) {
        b->host->touch_list(b->host->host, page->order, true);
        b->lists[page->order] = page->next;
    } else {
        b->host->touch_page(b->host->host, page->before, true);
        b->page[page->before].next = page->next;
    }
    if (page->next != NONE) {
        b->host->touch_page(b->host->host, page->next, true);
        b->page[page->next].before = page->before;
    }
    page->is_free = false;
    b->free -= 1u << page->order;
}

/* Under the zone's lock. */
static uint64_t take_block(struct buddy *b, uint32_t order) {
    uint32_t from = order;
    while (from < ORDERS && b->lists[from] == NONE) {
        from++;
    }
    if (from == ORDERS) {
        return MMS_NO_PAGE;
    }
    uint32_t first = b->lists[from];
    unlink_block(b, first);
    while (from > order) {
        from--;
        b->host->work(b->host->host, MMS_STEP, 1);
        link_block(b, first + (1u << from), from);
    }
    return first;
}

/* Under the zone's lock. */
static void put_block(struct buddy *b, uint64_t page, uint32_t order) {
    uint32_t first = page;
    while (order + 1 < ORDERS) {
        uint64_t other = first ^ (1u << order);
        if (other + (1u << order) > b->pages) {
            break;
        }
        b->host->touch_page(b->host->host, other, false);
        if (!b->page[other].is_free || b->page[other].order != order) {
            break;
        }
        unlink_block(b, other);
        b->host->work(b->host->host, MMS_STEP, 1);
        first &= ~(1u << order);
        order++;
    }
    link_block(b, first, order);
}

void mms_guest_init(void *memory, uint64_t pages, uint32_t cpus, const struct mms_host *host) {
    struct buddy *b = memory;
    b->host = host;
    b->pages = pages;
    b->cpus = cpus;
    b->page = (struct page *)&b->caches[cpus];
    for (uint32_t order = 0; order < ORDERS; order++) {
        b->lists[order] = NONE;
    }
    /* The largest blocks that fit, last first, so that the lists begin with low pages. */
    for (uint64_t end = pages; end > 0;) {
        uint32_t order = ORDERS - 1;
        while (end % (1u << order) != 0 || end < (1u << order)) {
            order--;
        }
        end -= 1u << order;
        link_block(b, end, order);
    }
}

/* Under the lock of the CPU. */
static void refill(struct buddy *b, struct cache *cache) {
    b->host->lock(b->host->host, ZONE_LOCK);
    for (uint32_t i = 0; i < BATCH; i++) {
        uint64_t page = take_block(b, 0);
        if (page == MMS_NO_PAGE) {
            break;
        }
        cache->pages[cache->count++] = page;
    }
    b->host->unlock(b->host->host, ZONE_LOCK);
}

static void flush(struct buddy *b, struct cache *cache, uint32_t pages) {
    b->host->lock(b->host->host, ZONE_LOCK);
    for (uint32_t i = 0; i < pages; i++) {
        put_block(b, cache->pages[--cache->count], 0);
    }
    b->host->unlock(b->host->host, ZONE_LOCK);
}

uint64_t mms_guest_alloc(void *memory, uint32_t order, uint32_t kind) {
    struct buddy *b = memory;
    uint64_t page = MMS_NO_PAGE;
    (void)kind;
    if (order == 0) {
        uint32_t cpu = b->host->cpu();
        struct cache *cache = &b->caches[cpu];
        b->host->lock(b->host->host, MMS_SHARED_LOCKS + cpu);
        if (cache->count == 0) {
            refill(b, cache);
        }
        if (cache->count > 0) {
            b->host->work(b->host->host, MMS_CACHE_TAKE, 1);
            page = cache->pages[--cache->count];
#ifdef TWICE
            /* A fault for tests: now and then the page stays in the cache. */
            static int turn;
            cache->count += ++turn % 1000 == 0;
#endif
        }
        b->host->unlock(b->host->host, MMS_SHARED_LOCKS + cpu);
        return page;
    }
    b->host->lock(b->host->host, ZONE_LOCK);
    page = take_block(b, order);
    b->host->unlock(b->host->host, ZONE_LOCK);
    return page;
}

void mms_guest_free(void *memory, uint64_t page, uint32_t order) {
    struct buddy *b = memory;
    if (order == 0) {
        uint32_t cpu = b->host->cpu();
        struct cache *cache = &b->caches[cpu];
        b->host->lock(b->host->host, MMS_SHARED_LOCKS + cpu);
        if (cache->count == MOST) {
            flush(b, cache, BATCH);
        }
        b->host->work(b->host->host, MMS_CACHE_PUT, 1);
        cache->pages[cache->count++] = page;
        b->host->unlock(b->host->host, MMS_SHARED_LOCKS + cpu);
        return;
    }
    b->host->lock(b->host->host, ZONE_LOCK);
    put_block(b, page, order);
    b->host->unlock(b->host->host, ZONE_LOCK);
}

uint64_t mms_guest_drain(void *memory, uint32_t cpu) {
    struct buddy *b = memory;
    struct cache *cache = &b->caches[cpu];
    b->host->lock(b->host->host, MMS_SHARED_LOCKS + cpu);
    uint32_t pages = cache->count;
    if (pages > 0) {
        flush(b, cache, pages);
    }
    b->host->unlock(b->host->host, MMS_SHARED_LOCKS + cpu);
    return pages;
}

uint64_t mms_guest_count_free(void *memory) {
    struct buddy *b = memory;
    uint64_t free = b->free;
    for (uint32_t cpu = 0; cpu < b->cpus; cpu++) {
        free += b->caches[cpu].count;
    }
    return free;
}
