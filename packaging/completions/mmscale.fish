# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_mmscale_global_optspecs
    string join \n h/help V/version
end

function __fish_mmscale_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_mmscale_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_mmscale_using_subcommand
    set -l cmd (__fish_mmscale_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c mmscale -n "__fish_mmscale_needs_command" -s h -l help -d 'Print help'
complete -c mmscale -n "__fish_mmscale_needs_command" -s V -l version -d 'Print version'
complete -c mmscale -n "__fish_mmscale_needs_command" -f -a "run" -d 'Run studies and show their results'
complete -c mmscale -n "__fish_mmscale_needs_command" -f -a "sweep" -d 'Run a study on many machines, with many policies and seeds; keep each run, and continue'
complete -c mmscale -n "__fish_mmscale_needs_command" -f -a "robust" -d 'Say which costs of the machine the conclusions of studies depend on'
complete -c mmscale -n "__fish_mmscale_needs_command" -f -a "whatif" -d 'Say what a study gains if a lock is held for less time, or a cost is smaller'
complete -c mmscale -n "__fish_mmscale_needs_command" -f -a "trace" -d 'Run a seed again and write what happened around its worst wait, for Perfetto'
complete -c mmscale -n "__fish_mmscale_needs_command" -f -a "compare" -d 'Compare two saved runs, before and after a change; or measured waits with a run'
complete -c mmscale -n "__fish_mmscale_needs_command" -f -a "letter" -d 'Write the block for the cover letter of a change, from saved runs'
complete -c mmscale -n "__fish_mmscale_needs_command" -f -a "report" -d 'Write one HTML page with the pictures of saved runs and analyses'
complete -c mmscale -n "__fish_mmscale_needs_command" -f -a "import" -d 'Read another tool\'s report of lock contention, for `compare`'
complete -c mmscale -n "__fish_mmscale_needs_command" -f -a "explain" -d 'Say which known problem a report or a mail resembles, and how to reproduce it'
complete -c mmscale -n "__fish_mmscale_needs_command" -f -a "list" -d 'List studies, policies, versions of Linux and machine profiles; describe one of them'
complete -c mmscale -n "__fish_mmscale_needs_command" -f -a "fidelity" -d 'Compare predictions with measurements: published ones, and those of this computer'
complete -c mmscale -n "__fish_mmscale_needs_command" -f -a "counts" -d 'Compare how often this kernel and the simulator do things for one program'
complete -c mmscale -n "__fish_mmscale_needs_command" -f -a "live" -d 'Watch the running kernel and report which of the contention problems it shows'
complete -c mmscale -n "__fish_mmscale_needs_command" -f -a "doctor" -d 'Show what this computer allows, and how to enable the rest'
complete -c mmscale -n "__fish_mmscale_needs_command" -f -a "calibrate" -d 'Measure single steps on this computer and write a machine profile'
complete -c mmscale -n "__fish_mmscale_needs_command" -f -a "profile" -d 'Write a machine profile of another computer; check and show profiles'
complete -c mmscale -n "__fish_mmscale_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c mmscale -n "__fish_mmscale_using_subcommand run" -l on -d 'The machine; the simulator if not given' -r -f -a "sim\t'The simulated machine of a profile'
threads\t'This computer\'s threads'
linux\t'The live kernel: real processes and system calls, and the waits for its locks'"
complete -c mmscale -n "__fish_mmscale_using_subcommand run" -l cpus -d 'CPUs of the machine, 1 to 4096; several values make a sweep' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand run" -l shape -d 'How CPUs are grouped if --cpus is not the profile\'s' -r -f -a "keep\t'With the profile\'s nodes, threads of a core and cache size; other --cpus are refused'
fill\t'The first CPUs of the profile\'s machine, as if they came online in order'
flat\t'One node, one cache, one thread a core'"
complete -c mmscale -n "__fish_mmscale_using_subcommand run" -l arm -d 'The arms to run, starting with the one to compare with; all if not given' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand run" -l policy -d 'Add an arm with these policies to the study\'s first arm, or to those of --arm; may be repeated. `mmscale list policies` shows all' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand run" -l linux -d 'Simulate the mechanisms of this version of Linux, 5.10 to 6.19 (mmscale list linux). Policies of an arm and of --policy replace them; an arm that is another version is left out' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand run" -l profile -d 'The simulated machine: a built-in profile, or the path of a profile file' -r -F
complete -c mmscale -n "__fish_mmscale_using_subcommand run" -l cost -d 'Another value of a cost of the profile, within its range; several values (KEY=110,575) make a sweep; may be repeated. `mmscale profile show NAME` has all costs with their ranges' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand run" -l hz -d 'Timer interrupts a second: 100, 250, 300 or 1000' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand run" -l seeds -d 'Number of seeds, one run each: 7 if not given, 2 with --quick; with --ab, 9 pairs' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand run" -l seed -d 'The first seed; the others follow it' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand run" -l set -d 'Set a parameter of the study; several values (key=8,16) make a sweep' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand run" -l format -d 'The form of the output' -r -f -a "text\t'For readers and mails, 72 columns'
json\t'For programs; one document a line'
md\t'Markdown tables'
csv\t'A row for each arm, seed and metric'"
complete -c mmscale -n "__fish_mmscale_using_subcommand run" -s o -l output -d 'Also write each document to the folder DIR, as text and as JSON; a name that ends in .json is the file of the only document' -r -F
complete -c mmscale -n "__fish_mmscale_using_subcommand run" -l ab -d 'Run two values of a kernel setting or of a parameter in turn, and compare them' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand run" -l with -d 'Run an installed stress-ng in place of the study\'s own workload (vmstat, churn)' -r -f -a "stress-ng\t'The stress-ng that is installed here'"
complete -c mmscale -n "__fish_mmscale_using_subcommand run" -l scale -d 'Number of stress-ng workers: for this machine, or as in the report' -r -f -a "machine\t'As many for each CPU as in the report'
report\t'As many as in the report'"
complete -c mmscale -n "__fish_mmscale_using_subcommand run" -l for -d 'Duration of each run of stress-ng: 30s, 2m; 30s if not given, 5s with --quick' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand run" -l only -d 'Show only metrics and locks that match one of the patterns; `*` is any text' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand run" -l hold -d 'Holds of spin locks of a class take FACTOR times as long: operations and lines, not the handoff. Simulated machines only' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand run" -l replace -d 'Replace documents of the same names in DIR; otherwise they are an error'
complete -c mmscale -n "__fish_mmscale_using_subcommand run" -l details -d 'Show everything: all metrics, locks, call paths, distributions'
complete -c mmscale -n "__fish_mmscale_using_subcommand run" -l robust -d 'Also move the costs of the machine, as `mmscale robust` does with these options, and say whether the conclusions hold'
complete -c mmscale -n "__fish_mmscale_using_subcommand run" -l check -d 'Run with checkers (lock order, frame ownership, leaks); a violation fails the run'
complete -c mmscale -n "__fish_mmscale_using_subcommand run" -l blame -d 'Show the work of the holders of locks while others waited'
complete -c mmscale -n "__fish_mmscale_using_subcommand run" -l quick -d 'Fewer seeds and shorter runs, for a first look'
complete -c mmscale -n "__fish_mmscale_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mmscale -n "__fish_mmscale_using_subcommand sweep" -s o -l output -d 'The folder for results. Runs that it has are not repeated, so that the same call continues an interrupted sweep' -r -F
complete -c mmscale -n "__fish_mmscale_using_subcommand sweep" -l jobs -d 'How many runs at a time; as many as this computer has CPUs if not given' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand sweep" -l one -d 'Execute the only run of SPEC, if its key is KEY, and write its document' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand sweep" -l format -d 'The form of the output: tables, or a document for each point' -r -f -a "text\t'For readers and mails, 72 columns'
json\t'For programs; one document a line'"
complete -c mmscale -n "__fish_mmscale_using_subcommand sweep" -l plan -d 'Run nothing; list all runs with their keys and a spec of each, as JSON'
complete -c mmscale -n "__fish_mmscale_using_subcommand sweep" -l collect -d 'Run nothing; show the points of finished runs'
complete -c mmscale -n "__fish_mmscale_using_subcommand sweep" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mmscale -n "__fish_mmscale_using_subcommand robust" -l cpus -d 'CPUs of the machine, 1 to 4096; several values make an analysis each' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand robust" -l shape -d 'How CPUs are grouped where --cpus is not the profile\'s' -r -f -a "keep\t'With the profile\'s nodes, threads of a core and cache size; other --cpus are refused'
fill\t'The first CPUs of the profile\'s machine, as if they came online in order'
flat\t'One node, one cache, one thread a core'"
complete -c mmscale -n "__fish_mmscale_using_subcommand robust" -l profile -d 'The machine whose costs move: a built-in profile, or the path of a profile file' -r -F
complete -c mmscale -n "__fish_mmscale_using_subcommand robust" -l cost -d 'Another value of a cost of the profile, within its range; several values (KEY=110,575) make a sweep; may be repeated. `mmscale profile show NAME` has all costs with their ranges' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand robust" -l hz -d 'Timer interrupts a second: 100, 250, 300 or 1000' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand robust" -l arm -d 'The arms to compare, the one to compare with first; all if none is named' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand robust" -l policy -d 'Add an arm with these policies to the study\'s first arm, or to those of --arm; may be repeated' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand robust" -l linux -d 'Simulate the mechanisms of this version of Linux, 5.10 to 6.19 (mmscale list linux). Policies of an arm and of --policy replace them; an arm that is another version is left out' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand robust" -l set -d 'Set a parameter of the study; several values (key=8,16) make an analysis each' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand robust" -l machines -d 'How many machines to draw, each with all costs from their ranges' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand robust" -l seeds -d 'How many seeds each machine runs' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand robust" -l seed -d 'The first seed; the others follow it' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand robust" -l format -d 'The form of the output' -r -f -a "text\t'For readers and mails, 72 columns'
json\t'For programs; one document a line'"
complete -c mmscale -n "__fish_mmscale_using_subcommand robust" -s o -l output -d 'Also write each analysis to the folder DIR, as text and as JSON; a name that ends in .json is the file of the only analysis' -r -F
complete -c mmscale -n "__fish_mmscale_using_subcommand robust" -l cache -d 'Where results of runs are kept, so that equal ones are not run again; $XDG_CACHE_HOME/mmscale or ~/.cache/mmscale if not given' -r -F
complete -c mmscale -n "__fish_mmscale_using_subcommand robust" -l quick -d 'Runs as short as those of `mmscale run --quick`; this is the default'
complete -c mmscale -n "__fish_mmscale_using_subcommand robust" -l full -d 'Runs of full length'
complete -c mmscale -n "__fish_mmscale_using_subcommand robust" -l replace -d 'Replace files of the same names in DIR; otherwise they are an error'
complete -c mmscale -n "__fish_mmscale_using_subcommand robust" -l no-cache -d 'Keep no results and use none'
complete -c mmscale -n "__fish_mmscale_using_subcommand robust" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mmscale -n "__fish_mmscale_using_subcommand whatif" -l of -d 'Lock classes (their holds), `handoff`, `lines`, operations of the profile; the locks that CPUs wait for, `handoff` and `lines` if none is named' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand whatif" -l cpus -d 'CPUs of the machine, 1 to 4096' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand whatif" -l shape -d 'How CPUs are grouped where --cpus is not the profile\'s' -r -f -a "keep\t'With the profile\'s nodes, threads of a core and cache size; other --cpus are refused'
fill\t'The first CPUs of the profile\'s machine, as if they came online in order'
flat\t'One node, one cache, one thread a core'"
complete -c mmscale -n "__fish_mmscale_using_subcommand whatif" -l profile -d 'The simulated machine: a built-in profile, or the path of a profile file' -r -F
complete -c mmscale -n "__fish_mmscale_using_subcommand whatif" -l cost -d 'Another value of a cost of the profile, within its range; several values (KEY=110,575) make a sweep; may be repeated. `mmscale profile show NAME` has all costs with their ranges' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand whatif" -l hz -d 'Timer interrupts a second: 100, 250, 300 or 1000' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand whatif" -l arm -d 'The arm; the study\'s first one if none is named' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand whatif" -l policy -d 'Use an arm with these policies' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand whatif" -l linux -d 'Simulate the mechanisms of this version of Linux, 5.10 to 6.19 (mmscale list linux)' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand whatif" -l set -d 'Set a parameter of the study' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand whatif" -l seeds -d 'How many seeds each point runs' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand whatif" -l seed -d 'The first seed; the others follow it' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand whatif" -l format -d 'The form of the output' -r -f -a "text\t'For readers and mails, 72 columns'
json\t'For programs; one document a line'"
complete -c mmscale -n "__fish_mmscale_using_subcommand whatif" -s o -l output -d 'Also write each analysis to the folder DIR, as text and as JSON; a name that ends in .json is the file of the only analysis' -r -F
complete -c mmscale -n "__fish_mmscale_using_subcommand whatif" -l quick -d 'Runs as short as those of `mmscale run --quick`; this is the default'
complete -c mmscale -n "__fish_mmscale_using_subcommand whatif" -l full -d 'Runs of full length'
complete -c mmscale -n "__fish_mmscale_using_subcommand whatif" -l replace -d 'Replace files of the same names in DIR; otherwise they are an error'
complete -c mmscale -n "__fish_mmscale_using_subcommand whatif" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mmscale -n "__fish_mmscale_using_subcommand trace" -l around -d 'The moment: the worst wait for a lock, by its class or by a metric of it' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand trace" -l cpus -d 'CPUs of the machine, 1 to 4096' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand trace" -l shape -d 'How CPUs are grouped where --cpus is not the profile\'s' -r -f -a "keep\t'With the profile\'s nodes, threads of a core and cache size; other --cpus are refused'
fill\t'The first CPUs of the profile\'s machine, as if they came online in order'
flat\t'One node, one cache, one thread a core'"
complete -c mmscale -n "__fish_mmscale_using_subcommand trace" -l profile -d 'The simulated machine: a built-in profile, or the path of a profile file' -r -F
complete -c mmscale -n "__fish_mmscale_using_subcommand trace" -l cost -d 'Another value of a cost of the profile, within its range; several values (KEY=110,575) make a sweep; may be repeated. `mmscale profile show NAME` has all costs with their ranges' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand trace" -l hz -d 'Timer interrupts a second: 100, 250, 300 or 1000' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand trace" -l arm -d 'The arm; the study\'s first one if none is named' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand trace" -l policy -d 'Use an arm with these policies' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand trace" -l linux -d 'Simulate the mechanisms of this version of Linux, 5.10 to 6.19 (mmscale list linux)' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand trace" -l set -d 'Set a parameter of the study' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand trace" -l seed -d 'The seed' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand trace" -s o -l output -d 'The file of the trace, or a folder for trace.perfetto-trace' -r -F
complete -c mmscale -n "__fish_mmscale_using_subcommand trace" -l folded -d 'Also write the call paths of that time, with their times, as folded stacks (FILE.folded)' -r -F
complete -c mmscale -n "__fish_mmscale_using_subcommand trace" -l quick -d 'A shorter run'
complete -c mmscale -n "__fish_mmscale_using_subcommand trace" -l replace -d 'Replace the files if they exist; otherwise that is an error'
complete -c mmscale -n "__fish_mmscale_using_subcommand trace" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mmscale -n "__fish_mmscale_using_subcommand compare" -l base -d 'Without AFTER: the arm to compare the other arms with; the first if not given' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand compare" -l format -d 'The form of the output' -r -f -a "text\t'For readers and mails, 72 columns'
md\t'Markdown, a table for each arm'
csv\t'A row for each metric of each arm'"
complete -c mmscale -n "__fish_mmscale_using_subcommand compare" -l fail-on-regression -d 'Exit with 1 if a metric is worse by more than this; `*` stands for any text; may be repeated' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand compare" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mmscale -n "__fish_mmscale_using_subcommand letter" -l arm -d 'The arms that the letter is about; all if not given' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand letter" -s h -l help -d 'Print help'
complete -c mmscale -n "__fish_mmscale_using_subcommand report" -s o -l output -d 'The file to write, or a folder for report.html' -r -F
complete -c mmscale -n "__fish_mmscale_using_subcommand report" -l replace -d 'Replace FILE if it exists; otherwise that is an error'
complete -c mmscale -n "__fish_mmscale_using_subcommand report" -s h -l help -d 'Print help'
complete -c mmscale -n "__fish_mmscale_using_subcommand import" -l cpus -d 'CPUs of the computer, if the report does not have them' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand import" -l seconds -d 'Duration of the measurement, if the report does not have it: 10, 10s, 2min' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand import" -l table -d 'The number of the table, in the order of the file, if the file has several' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand import" -s o -l output -d 'The file to write, such as production.json, or a folder for it; stdout if not given' -r -F
complete -c mmscale -n "__fish_mmscale_using_subcommand import" -l replace -d 'Replace FILE if it exists; otherwise that is an error'
complete -c mmscale -n "__fish_mmscale_using_subcommand import" -s h -l help -d 'Print help'
complete -c mmscale -n "__fish_mmscale_using_subcommand explain" -l cpus -d 'CPUs of the computer, if the report does not have them' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand explain" -l seconds -d 'Duration of the measurement, if the report does not have it: 10, 10s, 2min' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand explain" -l table -d 'The number of the table, in the order of the file, if the file has several' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand explain" -l run -d 'Run the study that the report resembles, and show its waits next to the measured ones'
complete -c mmscale -n "__fish_mmscale_using_subcommand explain" -s h -l help -d 'Print help'
complete -c mmscale -n "__fish_mmscale_using_subcommand list" -l format -d 'The form of the output' -r -f -a "text\t'For readers and mails, 72 columns'
json\t'For programs; one document a line'"
complete -c mmscale -n "__fish_mmscale_using_subcommand list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mmscale -n "__fish_mmscale_using_subcommand fidelity" -l format -d 'The form of the output' -r -f -a "text\t'For readers and mails, 72 columns'
md\t'A Markdown table, misses first'
json\t'For programs; one document'"
complete -c mmscale -n "__fish_mmscale_using_subcommand fidelity" -s o -l output -d 'Also write the results to FILE, as JSON; `--kept` shows them after the next build if FILE is gallery/kept.json' -r -F
complete -c mmscale -n "__fish_mmscale_using_subcommand fidelity" -l cache -d 'Where results of runs are kept, so that equal ones are not run again; $XDG_CACHE_HOME/mmscale or ~/.cache/mmscale if not given' -r -F
complete -c mmscale -n "__fish_mmscale_using_subcommand fidelity" -l profile -d 'Also compare this computer\'s threads with the prediction of its profile, as `mmscale calibrate` writes it' -r -F
complete -c mmscale -n "__fish_mmscale_using_subcommand fidelity" -l quick -d 'Only the ends of curves, no intervals, and no item that takes long'
complete -c mmscale -n "__fish_mmscale_using_subcommand fidelity" -l blind -d 'The predictions of measurements whose results are not known here'
complete -c mmscale -n "__fish_mmscale_using_subcommand fidelity" -l kept -d 'Show the results that were kept with the sources, without runs'
complete -c mmscale -n "__fish_mmscale_using_subcommand fidelity" -l no-cache -d 'Keep no results and use none'
complete -c mmscale -n "__fish_mmscale_using_subcommand fidelity" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mmscale -n "__fish_mmscale_using_subcommand counts" -l for -d 'How long every CPU is kept busy first, so that its upkeep ticks are seen: 10s to 10m' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand counts" -l format -d 'The form of the output' -r -f -a "text\t'For readers and mails, 72 columns'
json\t'For programs; one document a line'"
complete -c mmscale -n "__fish_mmscale_using_subcommand counts" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mmscale -n "__fish_mmscale_using_subcommand live" -l for -d 'How long: 30s, 500ms, 2min' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand live" -l study -d 'Observe only the problems of these studies: vmstat, churn, reap, pcp, ipi; all if not given' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand live" -l format -d 'The form of the output' -r -f -a "text\t'For readers and mails, 72 columns'
json\t'For programs; one document a line'"
complete -c mmscale -n "__fish_mmscale_using_subcommand live" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mmscale -n "__fish_mmscale_using_subcommand doctor" -l format -d 'The form of the output' -r -f -a "text\t'For readers and mails, 72 columns'
json\t'For programs; one document a line'"
complete -c mmscale -n "__fish_mmscale_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mmscale -n "__fish_mmscale_using_subcommand calibrate" -l of -d 'The part of this computer that the profile describes' -r -f -a "threads\t'Its threads as a machine, for comparison with --on threads'
kernel\t'Its kernel, for comparison with --on linux'"
complete -c mmscale -n "__fish_mmscale_using_subcommand calibrate" -s o -l output -d 'The file to write, such as this-computer.toml, or a folder for it; stdout if not given' -r -F
complete -c mmscale -n "__fish_mmscale_using_subcommand calibrate" -l replace -d 'Replace FILE if it exists; otherwise that is an error'
complete -c mmscale -n "__fish_mmscale_using_subcommand calibrate" -l quick -d 'Take half a second instead of some seconds, for a first look'
complete -c mmscale -n "__fish_mmscale_using_subcommand calibrate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mmscale -n "__fish_mmscale_using_subcommand profile; and not __fish_seen_subcommand_from new check show help" -s h -l help -d 'Print help'
complete -c mmscale -n "__fish_mmscale_using_subcommand profile; and not __fish_seen_subcommand_from new check show help" -f -a "new" -d 'Write a profile of another computer: its CPUs, and a base for all other numbers'
complete -c mmscale -n "__fish_mmscale_using_subcommand profile; and not __fish_seen_subcommand_from new check show help" -f -a "check" -d 'Count the numbers of a profile by the kind of source, and list errors (exit code 1)'
complete -c mmscale -n "__fish_mmscale_using_subcommand profile; and not __fish_seen_subcommand_from new check show help" -f -a "show" -d 'Show every number of a profile with its source, as a file that needs no base'
complete -c mmscale -n "__fish_mmscale_using_subcommand profile; and not __fish_seen_subcommand_from new check show help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c mmscale -n "__fish_mmscale_using_subcommand profile; and __fish_seen_subcommand_from new" -l base -d 'The profile from which all other numbers are inherited: a built-in one, or a file' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand profile; and __fish_seen_subcommand_from new" -l cpus -d 'CPUs, each hardware thread counted' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand profile; and __fish_seen_subcommand_from new" -l nodes -d 'Memory nodes; the base\'s if not given' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand profile; and __fish_seen_subcommand_from new" -l cluster -d 'CPUs behind one last-level cache, each hardware thread counted; the base\'s if not given' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand profile; and __fish_seen_subcommand_from new" -l smt -d 'Hardware threads of a core; the base\'s if not given' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand profile; and __fish_seen_subcommand_from new" -l memory -d 'Memory of a node, such as 256GiB; the base\'s if not given' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand profile; and __fish_seen_subcommand_from new" -l lscpu -d 'Take CPUs, nodes, caches and threads from that machine\'s output of `lscpu -J -e` (or `lscpu -J`); `-` is stdin' -r -F
complete -c mmscale -n "__fish_mmscale_using_subcommand profile; and __fish_seen_subcommand_from new" -l latencies -d 'Take line_*_ns from a matrix of one-way latencies in ns, as `core-to-core-latency --csv` (nviennot) writes it: medians by distance. Halve round trips first. With --lscpu, rows are CPUs in Linux\'s numbering; without, in the order of a profile' -r -F
complete -c mmscale -n "__fish_mmscale_using_subcommand profile; and __fish_seen_subcommand_from new" -l description -d 'A description of the machine' -r
complete -c mmscale -n "__fish_mmscale_using_subcommand profile; and __fish_seen_subcommand_from new" -s o -l output -d 'The file to write, such as epyc192.toml, or a folder for it; stdout if not given' -r -F
complete -c mmscale -n "__fish_mmscale_using_subcommand profile; and __fish_seen_subcommand_from new" -l replace -d 'Replace FILE if it exists; otherwise that is an error'
complete -c mmscale -n "__fish_mmscale_using_subcommand profile; and __fish_seen_subcommand_from new" -s h -l help -d 'Print help'
complete -c mmscale -n "__fish_mmscale_using_subcommand profile; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help'
complete -c mmscale -n "__fish_mmscale_using_subcommand profile; and __fish_seen_subcommand_from show" -l format -d 'The form of the output: a profile file, or JSON' -r -f -a "text\t'For readers and mails, 72 columns'
json\t'For programs; one document a line'"
complete -c mmscale -n "__fish_mmscale_using_subcommand profile; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mmscale -n "__fish_mmscale_using_subcommand profile; and __fish_seen_subcommand_from help" -f -a "new" -d 'Write a profile of another computer: its CPUs, and a base for all other numbers'
complete -c mmscale -n "__fish_mmscale_using_subcommand profile; and __fish_seen_subcommand_from help" -f -a "check" -d 'Count the numbers of a profile by the kind of source, and list errors (exit code 1)'
complete -c mmscale -n "__fish_mmscale_using_subcommand profile; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show every number of a profile with its source, as a file that needs no base'
complete -c mmscale -n "__fish_mmscale_using_subcommand profile; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c mmscale -n "__fish_mmscale_using_subcommand help; and not __fish_seen_subcommand_from run sweep robust whatif trace compare letter report import explain list fidelity counts live doctor calibrate profile help" -f -a "run" -d 'Run studies and show their results'
complete -c mmscale -n "__fish_mmscale_using_subcommand help; and not __fish_seen_subcommand_from run sweep robust whatif trace compare letter report import explain list fidelity counts live doctor calibrate profile help" -f -a "sweep" -d 'Run a study on many machines, with many policies and seeds; keep each run, and continue'
complete -c mmscale -n "__fish_mmscale_using_subcommand help; and not __fish_seen_subcommand_from run sweep robust whatif trace compare letter report import explain list fidelity counts live doctor calibrate profile help" -f -a "robust" -d 'Say which costs of the machine the conclusions of studies depend on'
complete -c mmscale -n "__fish_mmscale_using_subcommand help; and not __fish_seen_subcommand_from run sweep robust whatif trace compare letter report import explain list fidelity counts live doctor calibrate profile help" -f -a "whatif" -d 'Say what a study gains if a lock is held for less time, or a cost is smaller'
complete -c mmscale -n "__fish_mmscale_using_subcommand help; and not __fish_seen_subcommand_from run sweep robust whatif trace compare letter report import explain list fidelity counts live doctor calibrate profile help" -f -a "trace" -d 'Run a seed again and write what happened around its worst wait, for Perfetto'
complete -c mmscale -n "__fish_mmscale_using_subcommand help; and not __fish_seen_subcommand_from run sweep robust whatif trace compare letter report import explain list fidelity counts live doctor calibrate profile help" -f -a "compare" -d 'Compare two saved runs, before and after a change; or measured waits with a run'
complete -c mmscale -n "__fish_mmscale_using_subcommand help; and not __fish_seen_subcommand_from run sweep robust whatif trace compare letter report import explain list fidelity counts live doctor calibrate profile help" -f -a "letter" -d 'Write the block for the cover letter of a change, from saved runs'
complete -c mmscale -n "__fish_mmscale_using_subcommand help; and not __fish_seen_subcommand_from run sweep robust whatif trace compare letter report import explain list fidelity counts live doctor calibrate profile help" -f -a "report" -d 'Write one HTML page with the pictures of saved runs and analyses'
complete -c mmscale -n "__fish_mmscale_using_subcommand help; and not __fish_seen_subcommand_from run sweep robust whatif trace compare letter report import explain list fidelity counts live doctor calibrate profile help" -f -a "import" -d 'Read another tool\'s report of lock contention, for `compare`'
complete -c mmscale -n "__fish_mmscale_using_subcommand help; and not __fish_seen_subcommand_from run sweep robust whatif trace compare letter report import explain list fidelity counts live doctor calibrate profile help" -f -a "explain" -d 'Say which known problem a report or a mail resembles, and how to reproduce it'
complete -c mmscale -n "__fish_mmscale_using_subcommand help; and not __fish_seen_subcommand_from run sweep robust whatif trace compare letter report import explain list fidelity counts live doctor calibrate profile help" -f -a "list" -d 'List studies, policies, versions of Linux and machine profiles; describe one of them'
complete -c mmscale -n "__fish_mmscale_using_subcommand help; and not __fish_seen_subcommand_from run sweep robust whatif trace compare letter report import explain list fidelity counts live doctor calibrate profile help" -f -a "fidelity" -d 'Compare predictions with measurements: published ones, and those of this computer'
complete -c mmscale -n "__fish_mmscale_using_subcommand help; and not __fish_seen_subcommand_from run sweep robust whatif trace compare letter report import explain list fidelity counts live doctor calibrate profile help" -f -a "counts" -d 'Compare how often this kernel and the simulator do things for one program'
complete -c mmscale -n "__fish_mmscale_using_subcommand help; and not __fish_seen_subcommand_from run sweep robust whatif trace compare letter report import explain list fidelity counts live doctor calibrate profile help" -f -a "live" -d 'Watch the running kernel and report which of the contention problems it shows'
complete -c mmscale -n "__fish_mmscale_using_subcommand help; and not __fish_seen_subcommand_from run sweep robust whatif trace compare letter report import explain list fidelity counts live doctor calibrate profile help" -f -a "doctor" -d 'Show what this computer allows, and how to enable the rest'
complete -c mmscale -n "__fish_mmscale_using_subcommand help; and not __fish_seen_subcommand_from run sweep robust whatif trace compare letter report import explain list fidelity counts live doctor calibrate profile help" -f -a "calibrate" -d 'Measure single steps on this computer and write a machine profile'
complete -c mmscale -n "__fish_mmscale_using_subcommand help; and not __fish_seen_subcommand_from run sweep robust whatif trace compare letter report import explain list fidelity counts live doctor calibrate profile help" -f -a "profile" -d 'Write a machine profile of another computer; check and show profiles'
complete -c mmscale -n "__fish_mmscale_using_subcommand help; and not __fish_seen_subcommand_from run sweep robust whatif trace compare letter report import explain list fidelity counts live doctor calibrate profile help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c mmscale -n "__fish_mmscale_using_subcommand help; and __fish_seen_subcommand_from profile" -f -a "new" -d 'Write a profile of another computer: its CPUs, and a base for all other numbers'
complete -c mmscale -n "__fish_mmscale_using_subcommand help; and __fish_seen_subcommand_from profile" -f -a "check" -d 'Count the numbers of a profile by the kind of source, and list errors (exit code 1)'
complete -c mmscale -n "__fish_mmscale_using_subcommand help; and __fish_seen_subcommand_from profile" -f -a "show" -d 'Show every number of a profile with its source, as a file that needs no base'
