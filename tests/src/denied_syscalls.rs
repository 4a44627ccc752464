//! Scenarios of kernels and containers that deny optional system calls (real-time scheduling,
//! `io_uring`, clock control, locked memory, BPF): server and client start and work.

use std::collections::BTreeMap;
use std::thread;

use anyhow::{Result, anyhow, ensure};
use horolog_lab::{Lab, LabConfig};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use crate::process::{Engine, Server, TIMEOUT, binary, run_to_end, server_address};
use crate::scenario::Scenario;
use crate::{ROOT, client, denied_syscalls, scenarios};

pub(crate) fn all() -> Vec<Scenario> {
    scenarios!(ROOT, denied_syscalls:
        a_server_and_a_client_work_without_optional_calls,
        a_server_works_without_bpf,
    )
    .into()
}

const SCHEDULING: [i64; 3] =
    [libc::SYS_sched_setscheduler, libc::SYS_sched_setattr, libc::SYS_sched_setparam];
const IO_URING: [i64; 3] =
    [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];
const CLOCKS: [i64; 3] = [libc::SYS_adjtimex, libc::SYS_clock_adjtime, libc::SYS_clock_settime];
const LOCKING: [i64; 2] = [libc::SYS_mlock, libc::SYS_mlockall];

/// Executes `run` in a thread in which these calls return EPERM, as in the programs that it starts.
fn run_without(calls: &[i64], run: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    let rules: BTreeMap<_, _> = calls.iter().map(|call| (*call, Vec::new())).collect();
    let denied = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let processor = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, processor)?;
    let program: BpfProgram = filter.try_into()?;
    thread::scope(|scope| {
        let confined = scope.spawn(move || {
            seccompiler::apply_filter(&program)?;
            run()
        });
        confined.join().map_err(|_| anyhow!("the thread panicked"))?
    })
}

fn a_server_and_a_client_work_without_optional_calls() -> Result<()> {
    let calls = [&SCHEDULING[..], &IO_URING, &CLOCKS, &LOCKING].concat();
    for engine in Engine::ALL {
        let lab = Lab::new(&LabConfig::default())?;
        let at = server_address(&lab, false)?;
        run_without(&calls, || {
            let server = Server::start(lab.server(), engine, &[at], &[])?;
            ensure!(client::query_from(lab.client(), at)?.header.stratum == 10);
            let mut load = lab.client().command(binary()?);
            let target = at.ip().to_string();
            load.args(["load", "ntp", &target, "-r", "100", "-t", "0.5", "--engine", "udp"]);
            let output = run_to_end(&mut load, TIMEOUT)?;
            ensure!(output.status.success(), "{output:?}");
            let ended = server.end("TERM")?;
            ensure!(ended.status.success(), "{engine:?}: {}", ended.stderr);
            Ok(())
        })?;
    }
    Ok(())
}

/// The server falls back to sockets and reports the reason.
fn a_server_works_without_bpf() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    run_without(&[libc::SYS_bpf], || {
        let server = Server::start_auto(lab.server(), &[at])?;
        client::query_from(lab.client(), at)?;
        let status = server.status()?;
        ensure!(status["engine"] == "socket", "{status}");
        let stderr = server.end("TERM")?.stderr;
        ensure!(stderr.contains("not serving by XDP"), "{stderr}");
        Ok(())
    })
}
