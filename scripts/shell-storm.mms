// A shell script on each CPU: the shell forks for each command, the copy writes to some of its memory, and the
// command runs as a new program: a process of its own, for which the copy waits, and not an exec of the copy.
summary "shell scripts on every CPU: fork, a new program, exit";
profile "x86-512" cpus 96;

param shell   = 1536 KiB  "memory of the shell";
param copied  = 24 pages  "memory that the copy of the shell writes to";
param image   = 1 MiB     "memory that a command maps for its program and libraries";
param touched = 64 pages  "memory of it that the command uses";
param work    = 200us     "CPU time of a command, at most";

process sh per_cpu {
    mem = mmap(shell, POPULATE);
    write(mem);
    start;
    loop {
        child = fork {
            write(mem[..min(copied, shell)]);
            command = process {
                text = mmap(image);
                write(text[..min(touched, image)]);
                compute(rand(work / 4, work));
            }
            wait(command);
        }
        wait(child);
        count;
    }
}
