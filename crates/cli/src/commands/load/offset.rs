//! Flags of `horolog load` for offsets of the server's transmit timestamps.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::Args;
use horolog_load::offset::OffsetOptions;
use horolog_time::Span;

use crate::values;

/// Measurement of timestamp offsets.
#[derive(Args, Debug, Default)]
pub(crate) struct OffsetArgs {
    /// Measure the error of the server's transmit timestamps: the kernel receive time of the reply,
    /// minus the timestamp, minus this correction for transit and receiving, such as 0, 1.95e-6
    /// (seconds) or 2us.
    ///
    /// Both clocks must be correct. The xdp engine takes the receive time slightly earlier, in the
    /// driver's receive path.
    #[arg(long, value_name = "CORRECTION", value_parser = values::signed_span,
          allow_hyphen_values = true)]
    measure_offset: Option<Span>,
    /// Use the mean of the server's receive and transmit timestamps instead of the latter.
    #[arg(long, requires = "measure_offset")]
    offset_mean: bool,
    /// Measure offsets by the timestamps of the NIC's clock instead of the kernel's; the whole
    /// seconds by which its timescale is ahead of UTC are subtracted. Not with the xdp engine.
    #[arg(long, requires = "measure_offset")]
    hardware_timestamps: bool,
}

impl OffsetArgs {
    /// Returns true if any offsets are measured.
    pub(crate) const fn takes_any(&self) -> bool {
        self.measure_offset.is_some()
    }

    pub(crate) fn resolve(self) -> Option<OffsetOptions> {
        let (mean_of_server, hardware) = (self.offset_mean, self.hardware_timestamps);
        self.measure_offset.map(|correction| OffsetOptions { correction, mean_of_server, hardware })
    }
}
