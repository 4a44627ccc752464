//! The flags of `horolog load` by which offsets of the server's transmit timestamps are taken.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::Args;
use horolog_load::offset::OffsetOptions;
use horolog_time::Span;

use crate::values;

/// How offsets are taken.
#[derive(Args, Debug, Default)]
pub(crate) struct OffsetArgs {
    /// Measure how far the server's transmit timestamps are off: the instant at which this
    /// machine's kernel received the reply, less the timestamp, less this correction for the way
    /// and for receiving, in seconds or with a unit, such as 0, 1.95e-6 or 2us. Both clocks have to
    /// be right. Engine xdp takes the instant a little earlier, in the driver's receive path.
    #[arg(long, value_name = "CORRECTION", value_parser = values::signed_span,
          allow_hyphen_values = true)]
    offset: Option<Span>,
    /// Take the mean of the server's receive and transmit timestamps instead of the latter.
    #[arg(long, requires = "offset")]
    offset_mean: bool,
    /// Take offsets by the timestamps of the network card's own clock instead of the kernel's; the
    /// whole seconds that its timescale is ahead of UTC are taken off. Not with engine xdp.
    #[arg(long, requires = "offset")]
    hardware_timestamps: bool,
}

impl OffsetArgs {
    /// Whether offsets are taken at all.
    pub(crate) const fn takes_any(&self) -> bool {
        self.offset.is_some()
    }

    pub(crate) fn resolve(self) -> Option<OffsetOptions> {
        let (mean_of_server, hardware) = (self.offset_mean, self.hardware_timestamps);
        self.offset.map(|correction| OffsetOptions { correction, mean_of_server, hardware })
    }
}
