// stress-ng's mlock stressor: single pages are mapped, locked and unlocked. One operation is a page.
summary "pages that are locked and unlocked on every CPU";
profile "x86-512" cpus 96;
window 10ms after 5ms;

param pages_of_each = 64 [1..4096]  "pages of a round";

process mlock per_cpu {
    start;
    loop {
        mem = mmap(pages_of_each * 1 page);
        for i in 0..pages(mem) { mlock(mem[i]); count; }
        for i in 0..pages(mem) { munlock(mem[i]); }
        munmap(mem);
    }
}
