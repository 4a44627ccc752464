//! `horolog cycle run --join`: a node that joins the run of another host, the leader. It receives
//! its tasks from the leader, and measures the offset of its clock by NTP exchanges with it.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use horolog_cycle::cluster::{self, MemberError, MemberOptions, NodeClockOffset};
use horolog_io::target::TargetName;
use horolog_probe::query::{PreparedQuery, QueryOptions};
use horolog_time::Span;

use super::super::node::NODE_COMMAND;
use super::MultiHostArgs;
use crate::failure::CommandFailure;
use crate::output;

/// Number of NTP exchanges of one clock measurement: few enough not to disturb the tasks.
const EXCHANGE_COUNT: u64 = 8;
/// Interval between NTP exchanges of one clock measurement.
const EXCHANGE_INTERVAL: Duration = Duration::from_millis(20);

pub(super) fn run(
    leader: SocketAddr,
    args: &MultiHostArgs,
    injected_offset: Span,
) -> Result<(), CommandFailure> {
    let name = args.name.clone().map_or_else(host_name, Ok)?;
    output::install_interrupt_handler()?;
    let joined_note = format!("joined {leader} as {name}");
    let runs = cluster::join(&MemberOptions {
        program: PathBuf::from("/proc/self/exe"),
        arguments: NODE_COMMAND.map(str::to_owned).to_vec(),
        leader,
        wait: args.join_timeout.unwrap_or_default(),
        name,
        allows_commands: args.allow_commands,
        clock_injected_ns: injected_offset.as_ns(),
        measure_clock: &|| measure_clock_offset(leader),
        on_joined: &|| output::print_note(&joined_note),
        is_stop_requested: &|| output::check_stop_request().is_break(),
    })?;
    let what = if runs == 1 { "run" } else { "runs" };
    output::print_note(&format!("completed {runs} {what}"));
    Ok(())
}

fn host_name() -> Result<String, CommandFailure> {
    let read = fs::read_to_string("/proc/sys/kernel/hostname");
    read.map(|name| name.trim().to_owned()).map_err(|error| {
        CommandFailure::environment(format!("the host's name: {error}; give --name"))
    })
}

/// Measures the offset of this host's clock from the leader's by NTP exchanges.
fn measure_clock_offset(leader: SocketAddr) -> Result<NodeClockOffset, String> {
    let target = TargetName::parse(&leader.to_string(), leader.port());
    let target = target.map_err(|error| error.to_string())?;
    let options = QueryOptions {
        count: EXCHANGE_COUNT,
        interval: Some(EXCHANGE_INTERVAL),
        i_own_this_target: true,
        ..QueryOptions::new(vec![target])
    };
    let query = PreparedQuery::prepare(options).map_err(|error| error.to_string())?;
    let result = query.run(&|| (), &|| output::check_stop_request().is_break());
    let best = result.servers.first().and_then(|server| server.best.as_ref());
    // The query's offset is positive if the leader's clock is ahead.
    best.map(|best| NodeClockOffset { ahead_ns: -best.offset_ns, error_ns: best.bound_ns })
        .ok_or_else(|| "no NTP reply from the leader (UDP, its --listen port)".to_owned())
}

impl From<MemberError> for CommandFailure {
    fn from(error: MemberError) -> Self {
        match error {
            MemberError::CommandsNotAllowed => Self::usage(error),
            error => Self::environment(error),
        }
    }
}
