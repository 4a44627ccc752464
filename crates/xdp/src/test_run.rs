//! `BPF_PROG_TEST_RUN`: one frame through a program in tests, or live frames for sending (Linux,
//! `Documentation/bpf/bpf_prog_run.rst`).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use libbpf_sys::{BPF_F_TEST_XDP_LIVE_FRAMES, bpf_prog_test_run_opts, bpf_test_run_opts, xdp_md};

use crate::XdpError;
use crate::object::LoadedBpfObject;

/// BPF object with a program that passes every frame.
const PASS_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pass.o"));

/// Action that an XDP program returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XdpAction {
    /// Aborted by an error (`XDP_ABORTED`), or any action not listed here.
    Aborted,
    /// Dropped.
    Drop,
    /// Passed to the network stack.
    Pass,
    /// Sent by the ingress interface (`XDP_TX`).
    Transmit,
    /// Redirected to another interface, CPU or socket (`XDP_REDIRECT`).
    Redirect,
}

/// Result of a test run of a program over one frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TestRunOutcome {
    /// Action that the program returned.
    pub verdict: XdpAction,
    /// Frame as the program left it.
    pub frame: Vec<u8>,
}

/// Runs `program` once over `frame` and returns its action and the changed frame, which may be up
/// to 256 bytes longer. Nothing is sent.
pub(crate) fn run_once(program: BorrowedFd<'_>, frame: &[u8]) -> Result<TestRunOutcome, XdpError> {
    let mut out = vec![0_u8; frame.len() + 256];
    let mut options = bpf_test_run_opts {
        sz: size_of::<bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        data_out: out.as_mut_ptr().cast(),
        data_size_out: out.len() as u32,
        repeat: 1,
        ..Default::default()
    };
    // SAFETY: both buffers live through the call and their sizes are passed with them.
    let result = unsafe { bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    if result < 0 {
        return Err(XdpError::Run(io::Error::from_raw_os_error(-result)));
    }
    out.truncate(options.data_size_out as usize);
    Ok(TestRunOutcome { verdict: action(options.retval), frame: out })
}

fn action(value: u32) -> XdpAction {
    match value {
        libbpf_sys::XDP_DROP => XdpAction::Drop,
        libbpf_sys::XDP_PASS => XdpAction::Pass,
        libbpf_sys::XDP_TX => XdpAction::Transmit,
        libbpf_sys::XDP_REDIRECT => XdpAction::Redirect,
        _ => XdpAction::Aborted,
    }
}

/// Runs `program` repeatedly on live frames that begin as copies of `frame`, on the CPU that this
/// thread is pinned to, until `repeat` runs are done or a signal reaches the thread. Frames that
/// the program sends in a batch of `batch` runs leave at the end of the batch.
pub(crate) fn run_live(
    program: BorrowedFd<'_>,
    frame: &[u8],
    repeat: i32,
    batch: u32,
) -> Result<(), XdpError> {
    let context = xdp_md { data_end: frame.len() as u32, ..Default::default() };
    let mut options = bpf_test_run_opts {
        sz: size_of::<bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        ctx_in: (&raw const context).cast(),
        ctx_size_in: size_of::<xdp_md>() as u32,
        repeat,
        flags: BPF_F_TEST_XDP_LIVE_FRAMES,
        batch_size: batch,
        ..Default::default()
    };
    // SAFETY: frame and context live through the call and their sizes are passed with them.
    let result = unsafe { bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    match -result {
        0 | libc::EINTR => Ok(()),
        libc::EINVAL => Err(XdpError::NoLiveFrames),
        code => Err(XdpError::Run(io::Error::from_raw_os_error(code))),
    }
}

/// Returns true if this kernel can send frames from a test run, found by a program that passes one
/// frame to the loopback interface.
pub fn live_frames_supported() -> Result<bool, XdpError> {
    let loaded = LoadedBpfObject::load("pass", PASS_OBJECT, |_| Ok(()))?;
    match run_live(loaded.program("pass")?, &[0; 64], 1, 1) {
        Ok(()) => Ok(true),
        Err(XdpError::NoLiveFrames) => Ok(false),
        Err(error) => Err(error),
    }
}
