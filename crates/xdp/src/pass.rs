//! A program that lets every frame pass. On a virtual link, `XDP_TX` at one end reaches the other only
//! if that runs a program, too.

use crate::XdpError;
use crate::attach::{AttachMode, Attachment, Interface};
use crate::object::Loaded;

pub(crate) const NAME: &str = "pass";
pub(crate) const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pass.o"));

/// The program, in place on an interface; dropping it takes it off.
pub struct Pass {
    _attachment: Attachment,
    _loaded: Loaded,
}

impl Pass {
    /// Loads the program and attaches it in native mode to the interface.
    pub fn attach(interface: &Interface) -> Result<Self, XdpError> {
        let loaded = Loaded::load(NAME, OBJECT, |_| Ok(()))?;
        let attachment = Attachment::new(loaded.program("pass")?, interface, AttachMode::Native)?;
        Ok(Self { _attachment: attachment, _loaded: loaded })
    }
}
