// stress-ng's mmapmany stressor: many mappings of three pages, whose middle page is unmapped, and an end for
// all of them. One operation is a mapping.
summary "many mappings with holes on every CPU";
profile "x86-512" cpus 96;
window 20ms after 5ms;

param maps = 256 [1..4096]  "mappings of a round";

process mmapmany per_cpu {
    start;
    loop {
        room = mmap(maps * 3 pages, PROT_NONE);
        for i in 0..maps {
            mmap(room[i * 3..i * 3 + 3]);
            write(room[i * 3]);
            munmap(room[i * 3 + 1]);
            count;
        }
        munmap(room);
    }
}
