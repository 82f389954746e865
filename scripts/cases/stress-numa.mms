// stress-ng's numa stressor and vm-scalability's migrate-across-nodes: memory moves from node to node. One
// operation is a move of all of it.
summary "memory that moves between nodes on every CPU";
profile "x86-512" cpus 96;
window 20ms after 5ms;

param bytes = 256 KiB [4 KiB..64 MiB]  "memory of each process";

process numa per_cpu {
    mem = mmap(bytes);
    write(mem);
    start;
    loop {
        for node in 0..nodes {
            mbind(mem, node, MOVE);
            read(mem);
            count;
        }
    }
}
