//! A count of the server's replies that owes nothing to the generator: a packet socket of its own
//! beside it, with a filter for the server's address and port.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use horolog_io::{Batch, Device, FrameSelection, PacketDevice, PacketOptions, UdpFilter};
use horolog_lab::Host;
use horolog_load::{Load, LoadError, LoadOptions};
use horolog_record::{CaptureCheck, LoadResult, Trial};

use crate::commands::contest::Follower;
use crate::failure::Failure;

/// Frames that one call fetches.
const BATCH: usize = 64;
/// Only the number of frames counts, not what is in them.
const SNAP_LEN: usize = 128;
/// Holds the replies of a second at 100,000/s.
const RECEIVE_BUFFER: usize = 64 << 20;
/// Between two looks at whether the run is over.
const WAIT: Duration = Duration::from_millis(20);

/// Runs a load in `host` and counts what comes from `server` meanwhile.
pub(super) fn check(
    host: &Host,
    server: SocketAddr,
    options: LoadOptions,
) -> Result<CaptureCheck, Failure> {
    let interface = host.port().interface.clone();
    host.run(move || {
        let mut device = PacketDevice::open(&interface, &tap(server)).map_err(failed)?;
        let over = AtomicBool::new(false);
        let (captured, result) = thread::scope(|scope| {
            let counter = scope.spawn(|| count(&mut device, &over));
            let mut follower = Follower::named("capture: ".to_owned());
            let result: Result<LoadResult, LoadError> =
                Load::prepare(options).and_then(|load| load.run(&mut follower));
            follower.finish();
            over.store(true, Ordering::Relaxed);
            (counter.join(), result)
        });
        let captured = captured.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let counted = result?.trials.iter().map(frames).sum();
        let dropped = device.dropped().map_err(failed)?;
        Ok(CaptureCheck { counted, captured: captured.map_err(failed)?, dropped })
    })?
}

fn tap(server: SocketAddr) -> PacketOptions {
    PacketOptions {
        slots: BATCH,
        selection: FrameSelection::Udp(UdpFilter {
            source: server.ip(),
            source_port: Some(server.port()),
            destination_port: None,
            destination_network: None,
        }),
        receive_timestamps: false,
        receive_buffer: Some(RECEIVE_BUFFER),
        ..PacketOptions::default()
    }
}

/// Counts frames until it is over and no more are there.
fn count(device: &mut PacketDevice, over: &AtomicBool) -> std::io::Result<u64> {
    let mut frames = Batch::new(BATCH, SNAP_LEN);
    let mut count = 0;
    loop {
        // Asked first: what came before the end is still fetched after it.
        let last = over.load(Ordering::Relaxed);
        match device.receive(&mut frames, WAIT)? {
            0 if last => return Ok(count),
            fetched => count += fetched as u64,
        }
    }
}

/// Everything that the generator says came back from the server in a trial.
fn frames(trial: &Trial) -> u64 {
    let counted = [trial.received, trial.duplicate, trial.late, trial.invalid_total()];
    counted.iter().sum()
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::environment(format!("cannot capture replies: {error}"))
}
