/* The frame allocator in a kernel that has no heap: its tables are in a static buffer. There is one
 * CPU, and no interrupt handler allocates. It needs no C library; with one it is a program that can
 * be run. Returns 0, or the number of the line that failed. */

#include "mmscale_frames.h"

#define MAX_FRAMES 0xd000

#if __STDC_HOSTED__
#include <stdio.h>
static void say(const char *text) { puts(text); }
#else
/* The kernel's console. */
void say(const char *text);
/* Called for a wrong call that has no status. A library with the feature `std` does not ask for it. */
void mms_panic(const char *text) {
    say(text);
    __builtin_trap();
}
#endif

uint32_t mms_cpu(void) { return 0; }
uint32_t mms_cpus(void) { return 1; }
void mms_preempt_disable(void) {}
void mms_preempt_enable(void) {}
bool mms_irq_save(void) { return false; }
void mms_irq_restore(bool were_on) { (void)were_on; }
bool mms_request_drain(uint32_t cpu) { (void)cpu; return false; }

/* The kernel's image has room for the tables of the memory that it supports. */
static unsigned char tables[1 << 20];
mms_frames *frames;

#define CHECK(fact) if (!(fact)) return __LINE__

int main(void) {
    /* What the firmware reports: 190 MiB in two stretches. Frames of the image are a hole. */
    mms_stretch stretches[] = {{.start = 0x9000, .pages = 0x4000}, {.start = 0x100, .pages = 0x7e00}};
    mms_hole image = {.start = 0x100, .pages = 0x300};
    mms_memory memory = {stretches, 2, &image, 1};
    mms_config config = {.caches = MMS_CACHES_BLOCKMAP, .records = true};

    size_t bytes = mms_frames_size(&memory, config);
    CHECK(bytes > 0 && bytes <= sizeof tables);
    CHECK(mms_frames_init(&memory, config, tables, bytes / 2, &frames) == MMS_STATUS_BAD_BUFFER);
    mms_memory none = {NULL, 0, NULL, 0}, many = {stretches, MMS_MAX_RANGES, &image, 1};
    CHECK(mms_frames_size(&none, config) == 0);
    CHECK(mms_frames_init(&none, config, tables, bytes, &frames) == MMS_STATUS_BAD_CONFIG);
    CHECK(mms_frames_init(&many, config, tables, bytes, &frames) == MMS_STATUS_TOO_MANY_RANGES);
    /* Any alignment of the buffer will do. */
    mms_status status = mms_frames_init(&memory, config, tables + 1, bytes, &frames);
    if (status != MMS_STATUS_OK) {
        say(mms_status_text(status));
        return __LINE__;
    }
    uint64_t all = 0x4000 + 0x7e00 - 0x300;
    CHECK(mms_count_free(frames) == all);

    /* Every frame once, none of a hole. */
    static bool held[MAX_FRAMES];
    uint64_t count = 0, frame;
    while ((frame = mms_alloc_last(frames, 0, MMS_KIND_MOVABLE)) != MMS_NO_FRAME) {
        CHECK(frame >= 0x400 && frame < MAX_FRAMES && !held[frame]);
        held[frame] = true;
        count++;
    }
    CHECK(count == all && mms_count_free(frames) == 0);
    for (frame = 0; frame < MAX_FRAMES; frame++) {
        CHECK(!held[frame] || mms_free(frames, frame, 0) == MMS_STATUS_OK);
    }
    CHECK(mms_free(frames, 0x400, 0) == MMS_STATUS_NOT_ALLOCATED);
    CHECK(mms_free(frames, 0x100, 0) == MMS_STATUS_NO_FRAME);

    /* A range that a device needs, and a huge page in parts. */
    mms_drain(frames);
    CHECK(mms_alloc_range(frames, 0x9003, 1000) == MMS_STATUS_OK);
    CHECK(mms_alloc_at(frames, 0x9003, 0) == MMS_STATUS_IN_USE);
    CHECK(mms_free_range(frames, 0x9003, 1000) == MMS_STATUS_OK);
    uint64_t huge = mms_alloc(frames, 9, MMS_KIND_UNMOVABLE);
    CHECK(huge != MMS_NO_FRAME && mms_split(frames, huge, 9, 8) == MMS_STATUS_OK);
    CHECK(mms_free(frames, huge, 8) == MMS_STATUS_OK);
    CHECK(mms_free(frames, huge + 256, 8) == MMS_STATUS_OK);
    CHECK(mms_count_free(frames) == all);
    say("all frames are free");
    return 0;
}
