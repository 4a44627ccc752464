//! Conversion of a run plan to the settings of the BPF program; an error if the program does not
//! support the plan.

use horolog_record::LoadEngineKind as Kind;
use horolog_xdp::{GeneratorSettings, LANES_MAX, OffsetSettings, Protocol, XdpError};

use super::frames::RequestFrame;
use super::{interval_reader, reply_timeout};
use crate::engine::{EngineError, unavailable_error};
use crate::plan::RunPlan;
use crate::ptp::PtpRequestKind;
use crate::schedule;

/// Returns the settings of the BPF program for a run; `chained` is true for a part of a mix.
pub(super) fn settings(plan: &RunPlan, chained: bool) -> Result<GeneratorSettings, EngineError> {
    let frame = RequestFrame::new(plan)?;
    if plan.lanes > plan.cores.len() || plan.lanes > LANES_MAX {
        let reason = format!(
            "each of {} sending threads needs a core of its own, and {} are available",
            plan.lanes,
            plan.cores.len().min(LANES_MAX)
        );
        return Err(unavailable_error(Kind::Xdp, reason, "use fewer threads"));
    }
    let protocol = match plan.ptp.map(|ptp| ptp.kind) {
        None => Protocol::Ntp,
        Some(PtpRequestKind::Delay) => Protocol::PtpDelay,
        Some(PtpRequestKind::Nsm) => Protocol::PtpMonitor,
        Some(PtpRequestKind::Unicast(_)) => {
            let reason = "it does not support unicast negotiation".to_owned();
            return Err(unavailable_error(Kind::Xdp, reason, "use --engine packet or udp"));
        }
    };
    if !horolog_xdp::live_frames_supported()? {
        return Err(XdpError::NoLiveFrames.into());
    }
    Ok(GeneratorSettings {
        protocol,
        multicast: plan.ptp.is_some_and(|ptp| ptp.multicast),
        domain: plan.ptp.map_or(0, |ptp| ptp.domain),
        offsets: plan.offset.map(|offset| OffsetSettings {
            correction_ns: offset.correction.as_ns(),
            mean_of_server: offset.mean_of_server,
        }),
        ethernet: frame.target_mac,
        interface: frame.interface,
        target: plan.target.ip(),
        port: plan.target.port(),
        version: plan.version,
        lanes: plan.lanes as u32,
        echo: plan.echo,
        interleaved: plan.interleaved,
        clients: plan.clients,
        counts_each_client: plan.fairness,
        open_intervals: plan.interval.map_or(1, |interval| {
            interval_reader::open_interval_count(interval, reply_timeout(plan))
        }),
        chained,
        key: plan.token.key(),
        run_start_ns: plan.token.run_start().as_ns() as u64,
        reply_timeout_ns: plan.reply_timeout.as_nanos() as u64,
        request: frame.bytes,
        sums: frame.sums,
        first_client: frame.first_client,
        exponential: schedule::exponential_quantiles(),
    })
}
