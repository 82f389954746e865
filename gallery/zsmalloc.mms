// Processes write memory, page it out to compressed memory, and then unmap it at the same time.
// A time is one munmap.
summary "what makes munmap of compressed memory wait?";
profile "x86-512" cpus 4;
window 500ms after 0ms;
swap tasks * bytes compressed to percent;

param tasks = 4 [1..64]      "processes";
param bytes = 256 MiB        "memory of each process";
param percent = 0 [0..100]   "size of each compressed page; 0: 12 to 62, equally frequent";

arm index zs-lookup=index;
arm after zs-pages=after;
arm deferred zs-free=deferred;
arm locks zs-lookup=index, zs-pages=after;
arm all zs-lookup=index, zs-pages=after, zs-free=deferred;

process each tasks {
    mem = mmap(bytes);
    write(mem);
    madvise(mem, PAGEOUT);
    start;                      // all begin together
    time { munmap(mem); }
    count pages(mem);
}
