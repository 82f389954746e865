// A container host: on each CPU one container after another is started and ends. A container is a memory group with a
// process that has a child. Its memory group is created before and removed after it.
summary "what does it cost that memory groups come and go?";
profile "x86-512" cpus 64;
window 20ms after 20ms;

param churn = 1 [0..1]      "1: each container has a new memory group; 0: one after another is in the same group";
param pages = 64 pages      "memory that a container writes to";
param stay  = 0 [0..64]     "pages of a file that a container is the first to read, and that stay in memory after it";
param work  = 1ms           "CPU time of a container in user mode";

group pods cpus;

file layers = 256 MiB;

process runtime per_cpu {
    if churn == 1 { rmdir(pods[id]); }
    share = pages(layers) / cpus;
    from = id * share;
    read_pages = 0;
    start;
    // Tasks of a real computer are not in step.
    compute(rand(1ms));
    loop {
        if churn == 1 { mkdir(pods[id]); }
        app = process in pods[id] {
            mem = mmap(pages);
            write(mem);
            if stay > 0 {
                layer = mmap(layers[from + read_pages..from + read_pages + stay], SHARED, READ);
                read(layer);
            }
            child = fork { write(mem[..8]); }
            compute(rand(work / 2, work * 3 / 2));
            wait(child);
        }
        wait(app);
        if churn == 1 { rmdir(pods[id]); }
        read_pages = (read_pages + stay) % (share - stay);
        count;
    }
}
