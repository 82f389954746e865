// stress-ng's bigheap stressor: a heap grows by steps until a limit, its new pages are used, and it starts
// again. One operation is a step.
summary "heaps that grow on every CPU";
profile "x86-512" cpus 96;
window 20ms after 5ms;

param step = 64 KiB  [4 KiB..16 MiB]  "growth of a step";
param limit = 2 MiB  [64 KiB..1 GiB]  "largest size";

process bigheap per_cpu {
    start;
    loop {
        heap = mmap(step);
        write(heap);
        now_bytes = step;
        while now_bytes + step <= limit {
            heap = mremap(heap, now_bytes + step);
            write(heap[now_bytes..now_bytes + step]);
            now_bytes += step;
            count;
        }
        munmap(heap);
    }
}
