//! A node that joins another machine's run: its clock measured by `query`, its tasks as it is told.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use horolog_cycle::cluster::{self, Clock, Member, MemberError};
use horolog_io::target::TargetName;
use horolog_probe::query::{Query, QueryOptions};

use super::super::node::WORDS;
use super::ClusterArgs;
use crate::failure::Failure;
use crate::output;

/// Exchanges of a measurement, and the time between them: short enough not to disturb the tasks.
const EXCHANGES: u64 = 8;
const INTERVAL: Duration = Duration::from_millis(20);

pub(super) fn run(leader: SocketAddr, args: &ClusterArgs) -> Result<(), Failure> {
    let name = args.name.clone().map_or_else(host_name, Ok)?;
    output::end_gently()?;
    let joined = format!("joined {leader} as {name}");
    let runs = cluster::join(&Member {
        program: PathBuf::from("/proc/self/exe"),
        arguments: WORDS.map(str::to_owned).to_vec(),
        leader,
        wait: args.wait.unwrap_or_default(),
        name,
        allows_commands: args.allow_commands,
        clock_injected_ns: args.clock_ahead.map_or(0, horolog_time::Span::as_ns),
        measure: &|| measure(leader),
        joined: &|| output::note(&joined),
        is_over: &|| output::flow().is_break(),
    })?;
    let what = if runs == 1 { "run" } else { "runs" };
    output::note(&format!("took part in {runs} {what}"));
    Ok(())
}

fn host_name() -> Result<String, Failure> {
    let read = fs::read_to_string("/proc/sys/kernel/hostname");
    read.map(|name| name.trim().to_owned())
        .map_err(|error| Failure::environment(format!("the host's name: {error}; give --name")))
}

/// How far this clock is ahead of the leader's, by a few exchanges of NTP.
fn measure(leader: SocketAddr) -> Result<Clock, String> {
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
    // The offset is what the leader's clock is ahead of this one.
    best.map(|best| Clock { ahead_ns: -best.offset_ns, error_ns: best.bound_ns }).ok_or_else(|| {
        "the leader does not answer NTP (UDP, the port that it listens on)".to_owned()
    })
}

impl From<MemberError> for Failure {
    fn from(error: MemberError) -> Self {
        match error {
            MemberError::Command => Self::usage(error),
            error => Self::environment(error),
        }
    }
}
