// A child that ends immediately. One operation is a fork, the end and the wait.
summary "fork and exit of a process with 512 pages";
process parent per_cpu {
    mem = mmap(2 MiB, POPULATE);
    start;
    loop {
        child = fork { }
        wait(child);
        count;
    }
}
