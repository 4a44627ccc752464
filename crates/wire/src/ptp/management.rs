//! Management TLVs: requests for the state of a clock, responses, and errors (IEEE 1588-2019,
//! clause 15). The data sets are in [`data`].

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::tlv::{HEAD_LEN, Tlv};
use super::{PortIdentity, PortIdentityLayout};
use crate::ParseError;

pub mod data;
pub(super) mod layouts;
mod text;

/// TLV type MANAGEMENT, of requests and responses (table 52).
pub const MANAGEMENT_TLV_TYPE: u16 = 0x0001;
/// TLV type `MANAGEMENT_ERROR_STATUS`.
pub const MANAGEMENT_ERROR_TLV_TYPE: u16 = 0x0002;

/// Length of the managementId before the data, in bytes.
const ID_LEN: usize = 2;
/// Length of the value of an error TLV without display text, in bytes.
const ERROR_VALUE_LEN: usize = 8;
/// Length of a whole error TLV without display text, in bytes.
pub const MANAGEMENT_ERROR_TLV_LEN: usize = HEAD_LEN + ERROR_VALUE_LEN;

/// Value of actionField, four bits (table 57).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ManagementAction {
    /// Reads the data.
    Get,
    /// Changes the data.
    Set,
    /// Response to `Get` or `Set`.
    Response,
    /// Initiates an event at the clock.
    Command,
    /// Acknowledgement of a command.
    Acknowledge,
    /// Reserved action, with its four bits.
    Reserved(u8),
}

impl ManagementAction {
    /// Returns the action in the low four bits of `bits`.
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

    /// Returns the four bits of the action.
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

/// Header fields of a management message after the common header: target, hop limits and action
/// (clause 15.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ManagementHeader {
    /// Target port identity; all ones match every clock or port.
    pub target: PortIdentity,
    /// Initial value of `hops` (startingBoundaryHops).
    pub starting_hops: u8,
    /// Number of boundary clocks that may still forward the message (boundaryHops).
    pub hops: u8,
    /// Action that the message requests or answers.
    pub action: ManagementAction,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ManagementHeaderLayout {
    target: PortIdentityLayout,
    starting_hops: u8,
    hops: u8,
    action: u8,
    reserved: u8,
}

impl ManagementHeader {
    /// Length of these fields in bytes.
    pub(super) const LEN: usize = size_of::<ManagementHeaderLayout>();

    pub(super) fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (layout, rest) =
            ManagementHeaderLayout::read_from_prefix(bytes).map_err(|_| ParseError::Length)?;
        let header = Self {
            target: layout.target.into(),
            starting_hops: layout.starting_hops,
            hops: layout.hops,
            action: ManagementAction::from_bits(layout.action),
        };
        Ok((header, rest))
    }

    pub(super) fn emit(&self, buffer: &mut [u8]) {
        let layout = ManagementHeaderLayout {
            target: self.target.into(),
            starting_hops: self.starting_hops,
            hops: self.hops,
            action: self.action.bits(),
            reserved: 0,
        };
        buffer.copy_from_slice(layout.as_bytes());
    }
}

/// MANAGEMENT TLV: identifier and data (clause 15.5.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ManagementTlv<'a> {
    /// Identifier of the data; see [`data::id`].
    pub id: u16,
    /// Data; ignored in a `Get` request.
    pub data: &'a [u8],
}

impl<'a> ManagementTlv<'a> {
    /// Parses a MANAGEMENT TLV; `None` if the TLV is of another type. A value shorter than the
    /// identifier is [`ParseError::Length`].
    #[must_use]
    pub fn from_tlv(tlv: &Tlv<'a>) -> Option<Result<Self, ParseError>> {
        (tlv.type_number == MANAGEMENT_TLV_TYPE).then(|| {
            let (id, data) = tlv.value.split_first_chunk::<ID_LEN>().ok_or(ParseError::Length)?;
            Ok(Self { id: u16::from_be_bytes(*id), data })
        })
    }

    /// Returns the length of the whole TLV in bytes, padded to an even number.
    #[must_use]
    pub const fn tlv_len(&self) -> usize {
        HEAD_LEN + ID_LEN + self.data.len().next_multiple_of(2)
    }

    /// Writes the identifier and the data as a TLV to the front of `buffer` and returns its length
    /// in bytes.
    ///
    /// # Panics
    ///
    /// If `buffer` is shorter than [`ManagementTlv::tlv_len`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let length = self.tlv_len();
        let (head, rest) = buffer[..length].split_at_mut(HEAD_LEN);
        head[..2].copy_from_slice(&MANAGEMENT_TLV_TYPE.to_be_bytes());
        head[2..].copy_from_slice(&(rest.len() as u16).to_be_bytes());
        let (id, value) = rest.split_at_mut(ID_LEN);
        id.copy_from_slice(&self.id.to_be_bytes());
        let (data, padding) = value.split_at_mut(self.data.len());
        data.copy_from_slice(self.data);
        padding.fill(0);
        length
    }
}

/// Value of managementErrorId (table 109).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum ManagementErrorId {
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

impl ManagementErrorId {
    /// All error codes known here, by ascending number.
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

/// `MANAGEMENT_ERROR_STATUS` TLV: refusal of a request (clause 15.5.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ManagementErrorTlv {
    /// Reason for the refusal.
    pub code: ManagementErrorId,
    /// Identifier of the data in the refused request; see [`data::id`].
    pub id: u16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ManagementErrorLayout {
    code: U16,
    id: U16,
    reserved: [u8; 4],
}

const _: () = assert!(size_of::<ManagementErrorLayout>() == ERROR_VALUE_LEN);

impl ManagementErrorTlv {
    /// Parses an error TLV; `None` if the TLV is of another type. The display text is skipped. An
    /// unknown error code or too short a value is [`ParseError::Length`].
    #[must_use]
    pub fn from_tlv(tlv: &Tlv<'_>) -> Option<Result<Self, ParseError>> {
        (tlv.type_number == MANAGEMENT_ERROR_TLV_TYPE).then(|| {
            let (layout, _) = ManagementErrorLayout::read_from_prefix(tlv.value)
                .map_err(|_| ParseError::Length)?;
            let known = |code: &ManagementErrorId| *code as u16 == layout.code.get();
            let code = ManagementErrorId::ALL.into_iter().find(known).ok_or(ParseError::Length)?;
            Ok(Self { code, id: layout.id.get() })
        })
    }

    /// Writes the error as a TLV without display text to the front of `buffer` and returns its
    /// length in bytes.
    ///
    /// # Panics
    ///
    /// If `buffer` is shorter than [`MANAGEMENT_ERROR_TLV_LEN`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let layout = ManagementErrorLayout {
            code: U16::new(self.code as u16),
            id: U16::new(self.id),
            reserved: [0; 4],
        };
        Tlv { type_number: MANAGEMENT_ERROR_TLV_TYPE, value: layout.as_bytes() }.emit(buffer)
    }
}

#[cfg(test)]
#[path = "management_tests.rs"]
mod tests;
