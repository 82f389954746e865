// The processes of the study `reap`: a victim with memory is killed, and its killer helps to reap it. Here that is
// repeated; an operation is all of it.
// Not reproduced: the layout of an application: thousands of mappings, files, swapped and huge pages; here is one mapping
// Not reproduced: the OOM reaper (--set via=oom), which needs a memory cgroup with a limit
summary "do an exit and a reaper of one address space wait for each other?";
profile "arm64-8" cpus 8;
window 5s after 1s live 5s;

param bytes = 250 MiB            "memory of the victim";
param prepare = 300ms            "time in which the victim has written its memory";

process killer on 1 % cpus {
    start;
    loop {
        victim = process on cpus - 1 {
            mem = mmap(bytes, POPULATE);
            write(mem);
            loop { sleep(1s); }         // until it is killed
        }
        sleep(prepare);
        fd = pidfd_open(victim);
        kill(victim);
        try process_mrelease(fd);       // the exit may be the first
        close(fd);
        wait(victim);
        count;
    }
}
