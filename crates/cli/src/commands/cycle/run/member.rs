//! A node that joins another host's run: its clock measured by `query`, its tasks received from the
//! leader.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use horolog_cycle::cluster::{self, MemberError, MemberOptions, NodeClockOffset};
use horolog_io::target::TargetName;
use horolog_probe::query::{Query, QueryOptions};
use horolog_time::Span;

use super::super::node::WORDS;
use super::ClusterArgs;
use crate::failure::CommandFailure;
use crate::output;

/// Exchanges of a measurement, and the time between them: short enough not to disturb the tasks.
const EXCHANGES: u64 = 8;
const INTERVAL: Duration = Duration::from_millis(20);

pub(super) fn run(
    leader: SocketAddr,
    args: &ClusterArgs,
    injected: Span,
) -> Result<(), CommandFailure> {
    let name = args.name.clone().map_or_else(host_name, Ok)?;
    output::install_interrupt_handler()?;
    let joined = format!("joined {leader} as {name}");
    let runs = cluster::join(&MemberOptions {
        program: PathBuf::from("/proc/self/exe"),
        arguments: WORDS.map(str::to_owned).to_vec(),
        leader,
        wait: args.join_timeout.unwrap_or_default(),
        name,
        allows_commands: args.allow_commands,
        clock_injected_ns: injected.as_ns(),
        measure_clock: &|| measure(leader),
        on_joined: &|| output::print_note(&joined),
        is_stop_requested: &|| output::flow().is_break(),
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

/// Offset of this clock from the leader's, by a few NTP exchanges.
fn measure(leader: SocketAddr) -> Result<NodeClockOffset, String> {
    let target = TargetName::parse(&leader.to_string(), leader.port());
    let target = target.map_err(|error| error.to_string())?;
    let options = QueryOptions {
        count: EXCHANGES,
        interval: Some(INTERVAL),
        i_own_this_target: true,
        ..QueryOptions::new(vec![target])
    };
    let query = Query::prepare(options).map_err(|error| error.to_string())?;
    let result = query.run(&|| (), &|| output::flow().is_break());
    let best = result.servers.first().and_then(|server| server.best.as_ref());
    // The offset is that of the leader's clock from this one.
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
