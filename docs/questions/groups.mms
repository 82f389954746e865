// A process on each CPU, in turn in `groups` memory groups, as the containers of a host are. It maps memory, writes to it and
// unmaps it, or it is a shell that runs commands (scripts/shell-storm.mms).
summary "what a lruvec for each memory group and node changes";
profile "x86-512" cpus 64;
window 10ms after 5ms;

param groups = 8 [0..512]    "memory groups; 0: all processes are in the root, which is not charged";
param depth  = 1 [1..16]     "levels of groups below the root";
param shells = 0 [0..1]      "1: shells that run commands; 0: memory that is mapped and unmapped";
param bytes  = 64 pages      "memory that is mapped";
param tenants = 0 [0..64]    "processes on each CPU that take turns, each in a group of its own; 0: none";

group pods  groups depth depth;
group guest tenants depth depth;

process faults max(1 - shells - tenants, 0) per_cpu in pods {
    start;
    // Tasks of a real computer are not in step.
    compute(rand(20us));
    loop {
        mem = mmap(bytes);
        write(mem);
        munmap(mem);
        count;
    }
}

process sh shells per_cpu in pods {
    mem = mmap(1536 KiB, POPULATE);
    write(mem);
    start;
    loop {
        child = fork {
            write(mem[..24]);
            command = process {
                text = mmap(1 MiB);
                write(text[..64]);
                compute(rand(50us, 200us));
            }
            wait(command);
        }
        wait(child);
        count;
    }
}

// Number id is on CPU id modulo `cpus`.
process tenant tenants per_cpu in guest[id / cpus] {
    start;
    loop {
        mem = mmap(4 pages);
        write(mem);
        munmap(mem);
        count;
        sleep(rand(50us));
    }
}
