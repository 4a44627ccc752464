//! Flags of `horolog serve` for where the time comes from.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::Args;
use horolog_server::{SourceConfig, SourceSpec};

use crate::failure::Failure;

#[derive(Args, Debug)]
pub(crate) struct SourceArgs {
    /// Where the time comes from; can be given more than once, then the majority decides [default:
    /// system].
    ///
    /// system: the system clock, with what chronyd (at its socket, then at 127.0.0.1:323) or ntpd
    /// (at 127.0.0.1:123) says of it, else the kernel; or told whom to ask: system:kernel,
    /// system,chronyd=PATH, system,chronyd=ADDR:PORT, system,ntpd=ADDR:PORT.
    ///
    /// phc:/dev/ptpN: a PTP hardware clock, on TAI (scale=tai, with tai-offset=SECONDS where the
    /// kernel does not know it) or on UTC (scale=utc). shm:UNIT: shared memory as of ntpd's
    /// driver SHM. sock:PATH: a socket as of chronyd's driver SOCK. gpsd[:HOST:PORT].
    /// gnss:/dev/LINE: the sentences of a GNSS receiver on a serial line, with baud=N (9600). All
    /// of these take stratum=N, refid=ID, offset=TIME and uncertainty=TIME.
    #[arg(
        long,
        value_name = "KIND[:ARG][,KEY=VALUE...]",
        conflicts_with = "local",
        verbatim_doc_comment
    )]
    source: Vec<String>,
}

impl SourceArgs {
    /// Resolves them beside the flags that win over what a source says.
    pub(crate) fn resolve(
        self,
        local: bool,
        keep_stratum: bool,
        keep_root_delay: bool,
    ) -> Result<SourceConfig, Failure> {
        let texts = match (self.source.is_empty(), local) {
            (true, true) => Vec::new(),
            (true, false) => vec!["system".to_owned()],
            (false, _) => self.source,
        };
        let parse = |text: &String| {
            text.parse::<SourceSpec>()
                .map_err(|error| Failure::usage(format!("--source {text}: {error}")))
        };
        let sources = texts.iter().map(parse).collect::<Result<_, _>>()?;
        Ok(SourceConfig { sources, keep_stratum, keep_root_delay })
    }
}
