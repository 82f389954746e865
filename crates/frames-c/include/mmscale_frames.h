#ifndef MMSCALE_FRAMES_H
#define MMSCALE_FRAMES_H

/* Made by cbindgen from crates/frames-c/src; the test `header` compares it. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 The result of `mms_alloc` if there is no memory.
 */
#define MMS_NO_FRAME UINT64_MAX

/*
 The most stretches and holes, together, that `mms_frames_size` and `mms_frames_init` take: they
 sort them on the stack.
 */
#define MMS_MAX_RANGES 128

/*
 The result of a call.
 */
typedef enum {
  /*
   It is done.
   */
  MMS_STATUS_OK = 0,
  /*
   The memory or the configuration is invalid.
   */
  MMS_STATUS_BAD_CONFIG,
  /*
   The order is larger than 10, or than the block's.
   */
  MMS_STATUS_BAD_ARGUMENT,
  /*
   No zone has all of these frames.
   */
  MMS_STATUS_NO_FRAME,
  /*
   The frame is free already, or was never allocated.
   */
  MMS_STATUS_NOT_ALLOCATED,
  /*
   The frame is allocated, as a block of another order.
   */
  MMS_STATUS_WRONG_ORDER,
  /*
   No allocated block begins with the frame, or no block of the order can.
   */
  MMS_STATUS_NO_BLOCK,
  /*
   The frame is in use, or in the cache of a CPU that could not be drained.
   */
  MMS_STATUS_IN_USE,
  /*
   The pageblock of the frame is isolated or offline.
   */
  MMS_STATUS_ISOLATED,
  /*
   The allocator's structures contradict one another: a fault of the program, or of this
   library.
   */
  MMS_STATUS_INCONSISTENT,
  /*
   The buffer is null, or smaller than `mms_frames_size` says.
   */
  MMS_STATUS_BAD_BUFFER,
  /*
   There are more stretches and holes than `MMS_MAX_RANGES`.
   */
  MMS_STATUS_TOO_MANY_RANGES,
} mms_status;

/*
 How free memory is kept.
 */
typedef enum {
  /*
   In maps of pageblocks that CPUs own, without a lock of the zone.
   */
  MMS_CACHES_BLOCKMAP = 0,
  /*
   In buddy lists with a page cache for each CPU, as in Linux.
   */
  MMS_CACHES_STOCK,
} mms_caches;

/*
 The purpose of an allocation: kinds are kept apart in pageblocks of 2 MiB.
 */
typedef enum {
  /*
   Cannot move, and stays for long: kernel data.
   */
  MMS_KIND_UNMOVABLE = 0,
  /*
   Can be moved: memory of programs.
   */
  MMS_KIND_MOVABLE,
  /*
   Cannot move, and can be dropped: caches.
   */
  MMS_KIND_RECLAIMABLE,
} mms_kind;

/*
 An allocator of frames.
 */
typedef struct mms_frames mms_frames;

/*
 Memory without a hole. The caller rounds addresses inwards: the first frame up, the end down.
 */
typedef struct {
  /*
   The first frame.
   */
  uint64_t start;
  /*
   The number of frames.
   */
  uint64_t pages;
  /*
   The memory node.
   */
  uint32_t node;
  /*
   Whether it is below 4 GiB, and is to be kept for requests that need such memory.
   */
  bool is_dma32;
} mms_stretch;

/*
 Frames inside stretches that are never allocated: the kernel's image, tables of the firmware.
 */
typedef struct {
  /*
   The first frame.
   */
  uint64_t start;
  /*
   The number of frames.
   */
  uint64_t pages;
} mms_hole;

/*
 The memory of the computer.
 */
typedef struct {
  /*
   Its stretches.
   */
  const mms_stretch *stretches;
  /*
   The number of stretches.
   */
  size_t stretch_count;
  /*
   Its holes; may be null if there are none.
   */
  const mms_hole *holes;
  /*
   The number of holes.
   */
  size_t hole_count;
} mms_memory;

/*
 The configuration of the allocator. Begin with `{.records = true}`: `blockmap`, with which wrong
 frees are found. All 0 is `blockmap` without records.
 */
typedef struct {
  /*
   How free memory is kept: one of `mms_caches`.
   */
  uint32_t caches;
  /*
   Whether each frame has a record, a byte with `blockmap`, with which a free of a frame that
   is free, or of a block of another order, is always found. `stock` always has, of 12 bytes.
   */
  bool records;
} mms_config;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Allocates 2^`order` frames for `kind` (one of `mms_kind`), aligned to their number; returns the
 first, or `MMS_NO_FRAME` if there is no memory, no such order or kind. Where memory is short it
 drains the caches of all CPUs and waits for them, so it is not for interrupts, nor for code with
 interrupts off or a lock held.
 */
uint64_t mms_alloc(const mms_frames *frames, uint8_t order, uint32_t kind);

/*
 As `mms_alloc`, for interrupts and under locks: it waits for no CPU, but with `stock` for the
 lock of the zone. It may use half of the pages below the watermark.
 */
uint64_t mms_alloc_atomic(const mms_frames *frames, uint8_t order, uint32_t kind);

/*
 As `mms_alloc`, for code that frees memory: it may use all pages.
 */
uint64_t mms_alloc_last(const mms_frames *frames, uint8_t order, uint32_t kind);

/*
 Frees a block of 2^`order` frames. With records a wrong call changes nothing and says why.
 Without them not every one is found: the frames may be handed out twice, and a later free may
 panic.
 */
mms_status mms_free(const mms_frames *frames, uint64_t frame, uint8_t order);

/*
 Splits an allocated block of 2^`order` frames into blocks of 2^`into`, which are freed singly.
 With records it panics if there is no such block; without them it changes nothing.
 */
mms_status mms_split(const mms_frames *frames, uint64_t frame, uint8_t order, uint8_t into);

/*
 Allocates the block of 2^`order` frames that begins with `frame`.
 */
mms_status mms_alloc_at(const mms_frames *frames, uint64_t frame, uint8_t order);

/*
 Allocates `pages` frames that begin with `start`: all or none. They are freed singly, or with
 `mms_free_range`.
 */
mms_status mms_alloc_range(const mms_frames *frames, uint64_t start, uint64_t pages);

/*
 Frees frames of `mms_alloc_range`; stops at the first that cannot be freed.
 */
mms_status mms_free_range(const mms_frames *frames, uint64_t start, uint64_t pages);

/*
 The number of free frames, those in CPUs' caches included; exact while no CPU allocates or
 frees.
 */
uint64_t mms_count_free(const mms_frames *frames);

/*
 Drains the calling CPU's cache; returns the number of frames. A CPU does so before it is idle
 for long, where CPUs cannot interrupt one another.
 */
uint32_t mms_drain(const mms_frames *frames);

/*
 Handles the interrupt of `mms_request_drain`, with interrupts off.
 */
void mms_drain_interrupt(const mms_frames *frames);

/*
 Returns the number of bytes that `mms_frames_init` needs for the allocator and its tables, or 0
 if it would refuse `memory` or `config`.

 # Safety
 The pointers in `memory` are valid.
 */
size_t mms_frames_size(const mms_memory *memory, mms_config config);

/*
 Makes an allocator in which all of `memory` is free, in `buffer`, which has `bytes` bytes and
 any alignment, and stores it in `frames`. `memory` is not used afterwards. It needs no heap, and
 in an optimised build a stack of 16 KiB. The frames of the buffer are holes of `memory`, unless
 they are outside of it.

 # Safety
 The pointers are valid, also those in `memory`. Nothing else uses the buffer while the allocator
 is used. The allocator is not passed to `mms_frames_drop`: it has nothing to free.
 */
mms_status mms_frames_init(const mms_memory *memory,
                           mms_config config,
                           void *buffer,
                           size_t bytes,
                           mms_frames **frames);

/*
 Makes an allocator in which all of `memory` is free, with its tables on the heap, and stores it
 in `frames`. `memory` is not used afterwards. Needs the feature `std` of the library.

 # Safety
 The pointers are valid, also those in `memory`.
 */
mms_status mms_frames_new(const mms_memory *memory, mms_config config, mms_frames **frames);

/*
 Frees the memory of an allocator; the frames that it had handed out stay as they are. Needs the
 feature `std` of the library.

 # Safety
 `frames` is of `mms_frames_new`, no CPU uses it, and it is not used afterwards.
 */
void mms_frames_drop(mms_frames *frames);

/*
 Checks every structure, while no CPU allocates or frees. Needs the feature `std` of the library.
 */
mms_status mms_verify(const mms_frames *frames);

/*
 The number of the CPU that this runs on, below `mms_cpus()`. It stays the same between
 `mms_preempt_disable` and `mms_preempt_enable`, and no other code has it in that time but
 interrupts on the CPU.
 */
extern uint32_t mms_cpu(void);

/*
 The number of CPUs that may ever exist. Constant.
 */
extern uint32_t mms_cpus(void);

/*
 Disables preemption; nests.
 */
extern void mms_preempt_disable(void);

/*
 Ends one `mms_preempt_disable`.
 */
extern void mms_preempt_enable(void);

/*
 Disables interrupts on this CPU; returns whether they were on. May do nothing where no
 interrupt handler allocates or frees.
 */
extern bool mms_irq_save(void);

/*
 Turns interrupts on again if `were_on`.
 */
extern void mms_irq_restore(bool were_on);

/*
 Interrupts another CPU, whose handler calls `mms_drain_interrupt`; returns true. Returns
 false, and does nothing, where CPUs cannot interrupt one another.
 */
extern bool mms_request_drain(uint32_t cpu);

/*
 Ends the program after an error that cannot be reported as a status: a wrong call, or
 structures that contradict one another. Gets a text in English. Does not return. Asked for
 by a library without the feature `std` only.
 */
extern void mms_panic(const char *text);

/*
 A text for a status (one of `mms_status`), in English. It is never freed.
 */
const char *mms_status_text(uint32_t status);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* MMSCALE_FRAMES_H */
