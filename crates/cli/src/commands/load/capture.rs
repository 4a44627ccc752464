//! Flags of a load run that record sent and received packets.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::path::PathBuf;

use clap::Args;
use horolog_load::capture::{CaptureOptions, PACKETS_MAX};

use crate::values;

/// Capture of the requests and replies, for Wireshark.
#[derive(Args, Debug)]
pub(crate) struct CaptureArgs {
    /// Write the requests and replies to FILE in pcapng format. Above 10000 requests/s a sample of
    /// them is written: one in two, four, eight and so on, with its reply. It requires CAP_NET_RAW
    /// and the engine packet or udp, and reduces the rate.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Largest number of packets to write [default: 1M].
    #[arg(long, value_name = "PACKETS", requires = "pcap", value_parser = packets)]
    pcap_max: Option<u64>,
}

fn packets(text: &str) -> Result<u64, String> {
    match values::rate(text) {
        Ok(number) if number >= 1.0 && number.fract() == 0.0 => Ok(number as u64),
        _ => Err("expected a number of packets, such as 5000, 10k or 1M".to_owned()),
    }
}

impl CaptureArgs {
    pub(crate) fn resolve(self) -> Option<CaptureOptions> {
        let packets_max = self.pcap_max.unwrap_or(PACKETS_MAX);
        self.pcap.map(|path| CaptureOptions { path, packets_max })
    }
}
