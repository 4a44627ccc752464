//! Management messages: requests for the state of a clock, responses, and refusals (IEEE 1588-2019,
//! clause 15). The data sets are in [`data`].

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::tlv::{HEAD_LEN, Tlv};
use super::{PortIdentity, PortLayout};
use crate::Malformed;

pub mod data;
pub(super) mod layouts;
mod text;

/// Type of the request and response TLV (table 52).
pub const MANAGEMENT: u16 = 0x0001;
/// Type of the error TLV.
pub const MANAGEMENT_ERROR_STATUS: u16 = 0x0002;

/// Length of the identifier before the data.
const ID_LEN: usize = 2;
/// Length of a refusal's value without a display text.
const REFUSAL_LEN: usize = 8;
/// Length of a refusal as a TLV, in bytes.
pub const REFUSAL_TLV_LEN: usize = HEAD_LEN + REFUSAL_LEN;

/// Action, four bits (table 57).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ManagementAction {
    /// Read.
    Get,
    /// Write.
    Set,
    /// Response to either.
    Response,
    /// Command.
    Command,
    /// Acknowledgement of a command.
    Acknowledge,
    /// Reserved.
    Reserved(u8),
}

impl ManagementAction {
    /// Returns the action in the low four bits.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 0xf {
            0 => Self::Get,
            1 => Self::Set,
            2 => Self::Response,
            3 => Self::Command,
            4 => Self::Acknowledge,
            other => Self::Reserved(other),
        }
    }

    /// Returns its four bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::Get => 0,
            Self::Set => 1,
            Self::Response => 2,
            Self::Command => 3,
            Self::Acknowledge => 4,
            Self::Reserved(other) => other & 0xf,
        }
    }
}

/// Target of a management message, its hop limits, and the action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addressee {
    /// Ports that it is for.
    pub target: PortIdentity,
    /// Number of boundary clocks that it might pass when it was sent.
    pub starting_hops: u8,
    /// Number of boundary clocks that it may still pass.
    pub hops: u8,
    /// Action.
    pub action: ManagementAction,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct AddresseeLayout {
    target: PortLayout,
    starting_hops: u8,
    hops: u8,
    action: u8,
    reserved: u8,
}

impl Addressee {
    /// Length in bytes.
    pub(super) const LEN: usize = size_of::<AddresseeLayout>();

    pub(super) fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (layout, rest) =
            AddresseeLayout::read_from_prefix(bytes).map_err(|_| Malformed::Length)?;
        let addressee = Self {
            target: layout.target.into(),
            starting_hops: layout.starting_hops,
            hops: layout.hops,
            action: ManagementAction::from_bits(layout.action),
        };
        Ok((addressee, rest))
    }

    pub(super) fn emit(&self, buffer: &mut [u8]) {
        let layout = AddresseeLayout {
            target: self.target.into(),
            starting_hops: self.starting_hops,
            hops: self.hops,
            action: self.action.bits(),
            reserved: 0,
        };
        buffer.copy_from_slice(layout.as_bytes());
    }
}

/// Requested or reported data: an identifier and its data (clause 15.5.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Managed<'a> {
    /// Identifier; see [`data::id`].
    pub id: u16,
    /// Data; without meaning in a request.
    pub data: &'a [u8],
}

impl<'a> Managed<'a> {
    /// Parses it from a TLV; `None` if that is of another type.
    #[must_use]
    pub fn from_tlv(tlv: &Tlv<'a>) -> Option<Result<Self, Malformed>> {
        (tlv.number == MANAGEMENT).then(|| {
            let (id, data) = tlv.value.split_first_chunk::<ID_LEN>().ok_or(Malformed::Length)?;
            Ok(Self { id: u16::from_be_bytes(*id), data })
        })
    }

    /// Returns its length as a TLV, in bytes: that of a TLV is even.
    #[must_use]
    pub const fn tlv_len(&self) -> usize {
        HEAD_LEN + ID_LEN + self.data.len().next_multiple_of(2)
    }

    /// Writes it as a TLV to the front of `buffer` and returns its length.
    ///
    /// # Panics
    /// If `buffer` is shorter than [`Managed::tlv_len`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let length = self.tlv_len();
        let (head, rest) = buffer[..length].split_at_mut(HEAD_LEN);
        head[..2].copy_from_slice(&MANAGEMENT.to_be_bytes());
        head[2..].copy_from_slice(&(rest.len() as u16).to_be_bytes());
        let (id, value) = rest.split_at_mut(ID_LEN);
        id.copy_from_slice(&self.id.to_be_bytes());
        let (data, padding) = value.split_at_mut(self.data.len());
        data.copy_from_slice(self.data);
        padding.fill(0);
        length
    }
}

/// Reason of a refusal (table 109).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum RefusalCode {
    /// Response too long for a message.
    ResponseTooBig = 0x0001,
    /// Unknown identifier.
    NoSuchId = 0x0002,
    /// Data of the wrong length.
    WrongLength = 0x0003,
    /// Value not allowed.
    WrongValue = 0x0004,
    /// Data that cannot be changed.
    NotSetable = 0x0005,
    /// Operation not supported.
    NotSupported = 0x0006,
    /// Another reason.
    General = 0xfffe,
}

impl RefusalCode {
    /// All codes.
    pub const ALL: [Self; 7] = [
        Self::ResponseTooBig,
        Self::NoSuchId,
        Self::WrongLength,
        Self::WrongValue,
        Self::NotSetable,
        Self::NotSupported,
        Self::General,
    ];
}

/// Refusal of a request (clause 15.5.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Reason.
    pub code: RefusalCode,
    /// Requested identifier.
    pub id: u16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RefusedLayout {
    code: U16,
    id: U16,
    reserved: [u8; 4],
}

const _: () = assert!(size_of::<RefusedLayout>() == REFUSAL_LEN);

impl Refused {
    /// Parses it from a TLV; `None` if that is of another type. A display text is skipped.
    #[must_use]
    pub fn from_tlv(tlv: &Tlv<'_>) -> Option<Result<Self, Malformed>> {
        (tlv.number == MANAGEMENT_ERROR_STATUS).then(|| {
            let (layout, _) =
                RefusedLayout::read_from_prefix(tlv.value).map_err(|_| Malformed::Length)?;
            let known = |code: &RefusalCode| *code as u16 == layout.code.get();
            let code = RefusalCode::ALL.into_iter().find(known).ok_or(Malformed::Length)?;
            Ok(Self { code, id: layout.id.get() })
        })
    }

    /// Writes it as a TLV to the front of `buffer` and returns its length.
    ///
    /// # Panics
    /// If `buffer` is shorter than [`REFUSAL_TLV_LEN`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let layout = RefusedLayout {
            code: U16::new(self.code as u16),
            id: U16::new(self.id),
            reserved: [0; 4],
        };
        Tlv { number: MANAGEMENT_ERROR_STATUS, value: layout.as_bytes() }.emit(buffer)
    }
}

#[cfg(test)]
#[path = "management_tests.rs"]
mod tests;
