//! Count of the server's replies that is independent of the generator: a separate packet socket,
//! with a filter for the server's address and port.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use horolog_io::{Batch, BatchDevice, FrameSelection, PacketDevice, PacketOptions, UdpFilter};
use horolog_lab::LabHost;
use horolog_load::{LoadError, LoadOptions, LoadRun};
use horolog_record::{CaptureCheck, LoadResult, Trial};

use crate::commands::server_under_test::SearchProgress;
use crate::failure::CommandFailure;

/// Frames fetched by one call.
const BATCH: usize = 64;
/// Only the number of frames matters, not their content.
const SNAP_LEN: usize = 128;
/// Holds the replies of a second at 100,000/s.
const RECEIVE_BUFFER: usize = 64 << 20;
/// Interval between two checks of whether the run is over.
const WAIT: Duration = Duration::from_millis(20);

/// Runs a load in `host` and meanwhile counts the replies of `server`.
pub(super) fn check(
    host: &LabHost,
    server: SocketAddr,
    options: LoadOptions,
) -> Result<CaptureCheck, CommandFailure> {
    let interface = host.first_interface().name.clone();
    host.run(move || {
        let mut device = PacketDevice::open(&interface, &tap(server)).map_err(failed)?;
        let over = AtomicBool::new(false);
        let (captured, result) = thread::scope(|scope| {
            let counter = scope.spawn(|| count(&mut device, &over));
            let mut follower = SearchProgress::named("capture: ".to_owned());
            let result: Result<LoadResult, LoadError> =
                LoadRun::prepare(options).and_then(|load| load.run(&mut follower));
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

/// Counts frames until the run is over and no more are queued.
fn count(device: &mut PacketDevice, over: &AtomicBool) -> std::io::Result<u64> {
    let mut frames = Batch::new(BATCH, SNAP_LEN);
    let mut count = 0;
    loop {
        // Read first: frames from before the end are still fetched after it.
        let last = over.load(Ordering::Relaxed);
        match device.receive(&mut frames, WAIT)? {
            0 if last => return Ok(count),
            fetched => count += fetched as u64,
        }
    }
}

/// All replies of the server in a trial as counted by the generator.
fn frames(trial: &Trial) -> u64 {
    let counted = [trial.received, trial.duplicate, trial.late, trial.invalid_total()];
    counted.iter().sum()
}

fn failed(error: impl std::fmt::Display) -> CommandFailure {
    CommandFailure::environment(format!("cannot capture replies: {error}"))
}
