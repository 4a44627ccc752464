//! A tap on an interface: what a machine and one partner say to one another, seen as they pass,
//! both ways, with the kernel's timestamps. It only listens.
//!
//! The kernel shows taps what passes the network stack or a packet socket's queue. What is sent
//! past the queues, and what XDP sends or takes, no tap sees.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use horolog_sys::socket::Socket;

use crate::filter::{Conversation, KEEP_NOTHING, Sample};
use crate::{Batch, Device, FrameSelection, PacketDevice, PacketError, PacketOptions};

/// Frames that are taken at a time, and bytes of each.
const SLOTS: usize = 64;
const FRAME_LEN: usize = 2_048;
/// The kernel charges about 800 bytes for each small frame, so this holds some 20,000 of them.
const RECEIVE_BUFFER: usize = 16 << 20;

/// A tap, which sees nothing until [`TapControl::watch`] says what.
#[derive(Debug)]
pub struct Tap {
    device: PacketDevice,
    batch: Batch<()>,
}

/// Says what a tap is to see, also while another thread reads it.
#[derive(Debug)]
pub struct TapControl {
    socket: Socket,
    conversation: Conversation,
    is_loopback: bool,
}

impl Tap {
    /// Opens a tap on a conversation by `interface`. On a loopback interface each packet is seen
    /// once, as it comes in.
    ///
    /// # Errors
    ///
    /// See [`PacketError`].
    pub fn open(
        interface: &str,
        is_loopback: bool,
        conversation: Conversation,
    ) -> Result<(Self, TapControl), PacketError> {
        let options = PacketOptions {
            slots: SLOTS,
            selection: FrameSelection::Program(vec![KEEP_NOTHING]),
            outgoing: !is_loopback,
            receive_buffer: Some(RECEIVE_BUFFER),
            ..PacketOptions::default()
        };
        let device = PacketDevice::open(interface, &options)?;
        let socket = device
            .try_clone_socket()
            .map_err(|error| PacketError::Other(interface.to_owned(), error))?;
        let batch = Batch::new(SLOTS, FRAME_LEN);
        Ok((Self { device, batch }, TapControl { socket, conversation, is_loopback }))
    }

    /// Waits for packets, but not longer than `wait`, and returns those that came.
    ///
    /// # Errors
    ///
    /// What the interface suffers from.
    pub fn receive(&mut self, wait: Duration) -> io::Result<&Batch<()>> {
        self.device.receive(&mut self.batch, wait)?;
        Ok(&self.batch)
    }

    /// Packets that were missed because they were not read in time.
    ///
    /// # Errors
    ///
    /// What the kernel refused.
    pub fn dropped(&mut self) -> io::Result<u64> {
        self.device.dropped()
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

impl TapControl {
    /// What passes from here on is sampled so.
    ///
    /// # Errors
    ///
    /// What the kernel refused.
    pub fn watch(&self, sample: &Sample) -> io::Result<()> {
        self.socket.attach_filter(&self.conversation.program(sample, !self.is_loopback))
    }
}
