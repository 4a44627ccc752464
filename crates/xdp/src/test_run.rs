//! `BPF_PROG_TEST_RUN`: one frame through a program for a test, or live frames for the generator
//! (Linux, `Documentation/bpf/bpf_prog_run.rst`).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use libbpf_sys::{BPF_F_TEST_XDP_LIVE_FRAMES, bpf_prog_test_run_opts, bpf_test_run_opts, xdp_md};

use crate::XdpError;
use crate::object::Loaded;

/// A program that lets every frame pass.
const PASS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pass.o"));

/// What an XDP program did with a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It failed.
    Aborted,
    /// It dropped the frame.
    Drop,
    /// It passed the frame to the network stack.
    Pass,
    /// It sent the frame back by the interface that it came in by.
    Transmit,
    /// It sent the frame elsewhere.
    Redirect,
}

/// A frame after a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// What the program said.
    pub verdict: Verdict,
    /// The frame as the program left it.
    pub frame: Vec<u8>,
}

/// Runs `program` once over `frame`.
pub(crate) fn once(program: BorrowedFd<'_>, frame: &[u8]) -> Result<Outcome, XdpError> {
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
    // SAFETY: both buffers live through the call and their sizes are given with them.
    let result = unsafe { bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    if result < 0 {
        return Err(XdpError::Run(io::Error::from_raw_os_error(-result)));
    }
    out.truncate(options.data_size_out as usize);
    Ok(Outcome { verdict: verdict(options.retval), frame: out })
}

fn verdict(value: u32) -> Verdict {
    match value {
        libbpf_sys::XDP_DROP => Verdict::Drop,
        libbpf_sys::XDP_PASS => Verdict::Pass,
        libbpf_sys::XDP_TX => Verdict::Transmit,
        libbpf_sys::XDP_REDIRECT => Verdict::Redirect,
        _ => Verdict::Aborted,
    }
}

/// Runs `program` over and over on live frames that begin as copies of `frame`, on the processor
/// that this thread is pinned to, until `repeat` runs are done or a signal reaches the thread. What
/// the program sends in a batch of `batch` runs leaves at the end of the batch.
pub(crate) fn live(
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
    // SAFETY: frame and context live through the call and their sizes are given with them.
    let result = unsafe { bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    match -result {
        0 | libc::EINTR => Ok(()),
        libc::EINVAL => Err(XdpError::NoLiveFrames),
        code => Err(XdpError::Run(io::Error::from_raw_os_error(code))),
    }
}

/// Whether this kernel can send frames from a test run: asked by trying it with a program that lets
/// one frame pass to the loopback interface, which has no use for it.
pub fn live_frames_supported() -> Result<bool, XdpError> {
    let loaded = Loaded::load("pass", PASS, |_| Ok(()))?;
    match live(loaded.program("pass")?, &[0; 64], 1, 1) {
        Ok(()) => Ok(true),
        Err(XdpError::NoLiveFrames) => Ok(false),
        Err(error) => Err(error),
    }
}
