//! Parsing of numbers and addresses in files and messages: an invalid one is refused with a text
//! that names the valid form. For serde's `deserialize_with`.

use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;

use horolog_sys::zone::{AddressError, socket_address};
use serde::de::{Deserializer, Error, SeqAccess, Unexpected, Visitor};

/// Parses a whole number that fits into `T`, of which `u64` is the largest.
pub(crate) fn whole<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64> + DescribedNumber,
{
    from.deserialize_u64(WholeNumberVisitor(PhantomData))
}

/// Number type with a description of its valid values, for error messages.
pub(crate) trait DescribedNumber {
    /// Description of the valid values.
    const EXPECTED: &'static str;
}

impl DescribedNumber for u64 {
    const EXPECTED: &'static str = "a whole number of at least 1";
}

impl DescribedNumber for u8 {
    const EXPECTED: &'static str = "a whole number from 1 to 255";
}

struct WholeNumberVisitor<T>(PhantomData<T>);

impl<T: TryFrom<u64> + DescribedNumber> Visitor<'_> for WholeNumberVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        let unexpected = || E::invalid_value(Unexpected::Unsigned(number), &self);
        T::try_from(number).map_err(|_| unexpected())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }
}

/// Parses an address with a port, as text.
pub(crate) fn address<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    from.deserialize_str(AddressVisitor)
}

/// Parses a list of addresses with ports.
pub(crate) fn addresses<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<SocketAddr>, D::Error> {
    from.deserialize_seq(AddressListVisitor)
}

struct AddressVisitor;

impl Visitor<'_> for AddressVisitor {
    type Value = SocketAddr;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "an address and a port, such as 192.0.2.1:5000, [2001:db8::1]:5000 or \
             [fe80::1%eth0]:5000",
        )
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<SocketAddr, E> {
        socket_address(text).map_err(|error| match error {
            AddressError::Syntax => E::invalid_value(Unexpected::Str(text), &self),
            other => E::custom(format!("'{text}': {other}")),
        })
    }
}

struct AddressListVisitor;

impl<'de> Visitor<'de> for AddressListVisitor {
    type Value = Vec<SocketAddr>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of addresses and ports")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<SocketAddr>, A::Error> {
        let mut all = Vec::new();
        while let Some(AddressItem(address)) = items.next_element()? {
            all.push(address);
        }
        Ok(all)
    }
}

#[derive(serde::Deserialize)]
struct AddressItem(#[serde(deserialize_with = "address")] SocketAddr);
