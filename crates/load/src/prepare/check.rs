//! What is refused before anything is found out: options that cannot be, or not together.

use std::time::Duration;

use super::beside;
use crate::clients::LANES_MAX;
use crate::engine::EngineError;
use crate::error::LoadError;
use crate::options::{Job, LoadOptions};
use crate::ptp::{PtpKind, PtpPlan, Transport};
use crate::schedule;
use crate::token::TIME_BITS;

/// Refuses options whatever the target and the engine are.
pub(super) fn options(options: &LoadOptions) -> Result<(), LoadError> {
    if !(1..=4).contains(&options.version) {
        return Err(LoadError::Version(options.version));
    }
    if let Some(threads) = options.threads
        && !(1..=LANES_MAX).contains(&threads)
    {
        return Err(LoadError::Threads(threads));
    }
    if options.interleaved && (options.random_sources || options.echo) {
        return Err(LoadError::Interleaved);
    }
    if options.fairness && options.random_sources {
        return Err(LoadError::Fairness);
    }
    if let Some(manners) = &options.well_behaved {
        beside::check(manners, options)?;
    }
    if let Some(ptp) = &options.ptp {
        check_ptp(options, ptp)?;
    }
    let timeout = options.reply_timeout;
    // A token reaches back 68 s.
    let longest = Duration::from_mins(1);
    debug_assert!(longest.as_nanos() < 1 << TIME_BITS);
    if timeout < Duration::from_millis(1) || timeout > longest {
        return Err(LoadError::ReplyTimeout(timeout));
    }
    Ok(())
}

fn check_ptp(options: &LoadOptions, ptp: &PtpPlan) -> Result<(), LoadError> {
    if options.target.has_port() {
        return Err(LoadError::PtpPort);
    }
    if ptp.minor_version > 1 {
        return Err(LoadError::Ptp("there is PTP version 2.0 and 2.1; give 0 or 1"));
    }
    if ptp.kind != PtpKind::Delay && ptp.multicast {
        return Err(LoadError::Ptp("only delay requests go to a group; leave out multicast"));
    }
    if ptp.kind == PtpKind::Nsm && options.random_sources {
        return Err(LoadError::Ptp(
            "NetSync Monitor takes clients that can be told apart; leave out random sources",
        ));
    }
    if options.offset.is_some() && !ptp.tells_of_transmission() {
        return Err(LoadError::Ptp(
            "delay responses and grants tell of no transmission, so take offsets by 'ptp nsm'",
        ));
    }
    let names_clients = options.source_network.is_some() || options.random_sources;
    if ptp.transport == Transport::Ethernet && names_clients {
        return Err(LoadError::Ptp("over Ethernet clients have no addresses; leave them out"));
    }
    if options.interleaved || options.echo || options.nts.is_some() || options.sessions.is_some() {
        return Err(LoadError::Ptp("PTP has neither interleaved mode, nor NTS, nor reflectors"));
    }
    Ok(())
}

/// Refuses rates that no schedule has, however many lanes share them.
pub(super) fn plannable(options: &LoadOptions, cores: usize) -> Result<(), EngineError> {
    let (rates, duration) = match &options.job {
        Job::Ramp(ramp) => ([ramp.min, ramp.max], ramp.duration),
        Job::Search { config, .. } => ([config.min_rate, config.max_rate], config.final_duration),
        Job::Course(course) => ([course.lowest(), course.highest()], course.duration()),
        Job::Overload(rate) => {
            let surge = options.surge.unwrap_or_default();
            ([rate * surge.base, rate * surge.factor], surge.time)
        }
    };
    for rate in rates {
        for lanes in [1, options.threads.unwrap_or(cores).max(1)] {
            schedule::interval(rate, lanes)
                .ok_or(EngineError::Rate { rate, duration_s: duration.as_secs_f64() })?;
        }
    }
    Ok(())
}

/// What the kernel's program has not that is asked for: why, and what to use.
pub(super) fn beyond_kernel(options: &LoadOptions) -> Option<(&'static str, &'static str)> {
    if options.nts.is_some() || options.sessions.is_some() {
        let reason = "the kernel has no cipher for authenticated requests";
        Some((reason, "use --engine packet or udp with --nts"))
    } else if !options.additions.is_empty() {
        let remedy = "use --engine packet or udp with --key or --extension";
        Some(("its requests are one header", remedy))
    } else if options.offset.is_some_and(|offset| offset.hardware) {
        let remedy = "use --engine packet or udp with hardware timestamps";
        Some(("it takes its own instants, not the card's", remedy))
    } else if options.capture.is_some() {
        let remedy = "use --engine packet or udp with --pcap";
        Some(("no tap sees what XDP sends and takes", remedy))
    } else {
        None
    }
}
