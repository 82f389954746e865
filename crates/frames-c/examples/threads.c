/* The frame allocator in a program in C: threads are CPUs. Each allocates blocks and passes them to
 * the next, which frees them. At the end every frame is free. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "mmscale_frames.h"

#define CPUS 2
#define BLOCKS 100000
#define BOXES 64

static _Thread_local uint32_t own_cpu;

/* What the allocator asks of its host. A kernel reads its per-CPU data and its interrupt flag. */
uint32_t mms_cpu(void) { return own_cpu; }
uint32_t mms_cpus(void) { return CPUS; }
void mms_preempt_disable(void) {}
void mms_preempt_enable(void) {}
bool mms_irq_save(void) { return false; }
void mms_irq_restore(bool were_on) { (void)were_on; }
bool mms_request_drain(uint32_t cpu) { (void)cpu; return false; }

static mms_frames *frames;
/* Blocks on their way to the next CPU: a frame and an order, plus 1; 0: none. */
static _Atomic uint64_t boxes[CPUS][BOXES];

static void check(mms_status status, const char *what) {
    if (status != MMS_STATUS_OK) {
        fprintf(stderr, "%s: %s\n", what, mms_status_text(status));
        exit(1);
    }
}

static void free_block(uint64_t word) {
    if (word != 0) {
        check(mms_free(frames, (word - 1) >> 8, (word - 1) & 0xff), "freeing a block");
    }
}

static void *run_cpu(void *number) {
    own_cpu = (uint32_t)(uintptr_t)number;
    for (uint64_t turn = 0; turn < BLOCKS; turn++) {
        uint8_t order = turn % 4;
        uint64_t frame = mms_alloc(frames, order, MMS_KIND_MOVABLE);
        if (frame == MMS_NO_FRAME) {
            fprintf(stderr, "no memory after %llu blocks\n", (unsigned long long)turn);
            exit(1);
        }
        uint64_t word = (frame << 8 | order) + 1;
        free_block(atomic_exchange(&boxes[(own_cpu + 1) % CPUS][turn % BOXES], word));
        free_block(atomic_exchange(&boxes[own_cpu][turn % BOXES], 0));
    }
    /* No CPU can interrupt this one, so it drains its cache before it ends. */
    mms_drain(frames);
    return NULL;
}

int main(void) {
    /* Two stretches of memory, and a kernel's image in the first. */
    mms_stretch stretches[] = {{.start = 0x100, .pages = 0xff00}, {.start = 0x20000, .pages = 0x8000}};
    mms_hole image = {.start = 0x1000, .pages = 0x837};
    mms_memory memory = {stretches, 2, &image, 1};
    mms_config config = {.caches = MMS_CACHES_BLOCKMAP, .records = true};
    check(mms_frames_new(&memory, config, &frames), "making the allocator");
    uint64_t all = mms_count_free(frames);
    printf("%llu frames are free\n", (unsigned long long)all);

    pthread_t cpus[CPUS];
    for (uintptr_t cpu = 0; cpu < CPUS; cpu++) {
        pthread_create(&cpus[cpu], NULL, run_cpu, (void *)cpu);
    }
    for (int cpu = 0; cpu < CPUS; cpu++) {
        pthread_join(cpus[cpu], NULL);
    }
    for (int cpu = 0; cpu < CPUS; cpu++) {
        for (int box = 0; box < BOXES; box++) {
            free_block(atomic_exchange(&boxes[cpu][box], 0));
        }
    }

    /* A range that a device needs, and a huge page in parts. */
    check(mms_alloc_range(frames, 0x21003, 1000), "taking a range");
    printf("a frame of the range again: %s\n", mms_status_text(mms_alloc_at(frames, 0x21003, 0)));
    check(mms_free_range(frames, 0x21003, 1000), "freeing the range");
    uint64_t huge = mms_alloc(frames, 9, MMS_KIND_MOVABLE);
    check(mms_split(frames, huge, 9, 8), "splitting a huge page");
    check(mms_free(frames, huge, 8), "freeing its first half");
    printf("the first half again: %s\n", mms_status_text(mms_free(frames, huge, 8)));
    check(mms_free(frames, huge + 256, 8), "freeing its second half");

    check(mms_verify(frames), "checking the allocator");
    uint64_t free = mms_count_free(frames);
    printf("%llu frames are free\n", (unsigned long long)free);
    mms_frames_drop(frames);
    return free == all ? 0 : 1;
}
