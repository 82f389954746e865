summary "a CPU goes offline and online";

process plug {
    start;
    loop {
        cpu_offline(1);
        cpu_online(1);
        count;
    }
}
