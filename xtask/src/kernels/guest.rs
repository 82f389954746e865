//! Reads the output of the first process of a virtual machine (`xtask/kernels_init/main.rs`), which
//! it wrote to the second serial port.

/// The output of a machine that came up.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Transcript {
    /// The release of the kernel.
    pub(super) release: String,
    /// The jobs that ended, in order.
    pub(super) jobs: Vec<Job>,
    /// Whether the machine ran all jobs and powered itself off.
    pub(super) complete: bool,
}

/// A call of the program.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Job {
    /// Its arguments.
    pub(super) args: String,
    /// Its exit code, or the signal that ended it.
    pub(super) ended: String,
    /// Its standard output.
    pub(super) output: String,
}

impl Transcript {
    /// Reads the bytes of the port, however few of them arrived.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        // A terminal writes line ends as two characters.
        let text = String::from_utf8_lossy(bytes).replace('\r', "");
        let mut transcript = Self::default();
        let mut open: Option<Job> = None;
        for line in text.lines() {
            match (&mut open, line.split_once(' ')) {
                (None, Some(("up", rest))) => {
                    transcript.release = rest.split(' ').next().unwrap_or_default().to_owned();
                }
                (None, Some(("begin", args))) => {
                    open = Some(Job { args: args.to_owned(), ..Job::default() });
                }
                (Some(_), Some(("end", code))) => {
                    transcript.jobs.extend(open.take().map(|job| Job {
                        ended: code.to_owned(),
                        output: job.output.trim_end().to_owned(),
                        ..job
                    }));
                }
                (Some(job), _) => {
                    job.output.push_str(line);
                    job.output.push('\n');
                }
                (None, _) => transcript.complete |= line == "down",
            }
        }
        transcript
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transcript_has_the_jobs_that_ended() {
        let whole = b"up 6.1.0 0-3\r\nbegin doctor\r\n{\"a\":1}\r\n\r\nend 0\r\nbegin run x\r\n\
                      \r\nend 1\r\ndown\r\n";
        let seen = Transcript::parse(whole);
        assert_eq!((seen.release.as_str(), seen.complete), ("6.1.0", true));
        let job = |args: &str, ended: &str, output: &str| Job {
            args: args.to_owned(),
            ended: ended.to_owned(),
            output: output.to_owned(),
        };
        assert_eq!(seen.jobs, [job("doctor", "0", "{\"a\":1}"), job("run x", "1", "")]);
        let cut = Transcript::parse(&whole[..60]);
        assert_eq!((cut.jobs.len(), cut.complete), (1, false));
        assert_eq!(Transcript::parse(b""), Transcript::default());
    }
}
