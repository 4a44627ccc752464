//! Parser of the key files of chrony (`chrony.keys`) and ntpd (`ntp.keys`): one line per key, with
//! identifier, type and key. Error messages contain no part of a key.

use core::{fmt, str};
use std::collections::HashMap;
use std::net::IpAddr;

use thiserror::Error;
use zeroize::Zeroizing;

use super::{KeyError, KeyTable, MacAlgorithm, SymmetricKey};
use crate::secret::hex_value;

/// Largest number of characters with which ntpd and chrony take a key without prefix for text.
const TEXT_LEN_MAX: usize = 20;
/// Byte order mark that some editors write before a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Key types of other programs that are not supported here.
const UNSUPPORTED_TYPES: [&str; 22] = [
    "DES",
    "MD2",
    "MD4",
    "MDC2",
    "RIPEMD160",
    "RMD160",
    "SHA224",
    "SHA512-224",
    "SHA512-256",
    "SHA3-224",
    "SHA3-256",
    "SHA3-384",
    "SHA3-512",
    "SHAKE128",
    "SHAKE256",
    "BLAKE2B512",
    "BLAKE2S256",
    "SM3",
    "TIGER",
    "WHIRLPOOL",
    "AES192",
    "GMAC",
];

/// Content of a key file. Each line is empty, a comment (beginning with `#`, `%`, `;` or `!`), or
///
/// ```text
/// IDENTIFIER TYPE KEY [ADDRESSES]      # comment
/// ```
///
/// The identifier is a number from 1 to 4,294,967,295, the type one of AES128, AES256, SHA1,
/// SHA256, SHA384, SHA512, or an alias. The key is `HEX:` and hexadecimal digits, or `ASCII:` and
/// text. Without such a prefix, pairs of hexadecimal digits are a key in hexadecimal: for the AES
/// types unless as text they have the length of the type, for the others if there are more than 20
/// digits (as in ntpd). Anything else is text. The addresses name the hosts that may serve time
/// with the key (`ntp.keys(5)`); they are not enforced here.
#[derive(Debug)]
pub struct KeyFile {
    /// Usable keys; of several lines with the same identifier, only the first.
    pub keys: KeyTable,
    /// Lines without a usable key, with the reasons.
    pub unused: UnusedKeyFileLines,
}

/// Lines of a key file that contain no usable key, with the reasons. Formatted as one line that
/// names the first 20 of them and contains no part of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnusedKeyFileLines(Vec<(usize, KeyFileLineError)>);

/// Largest number of lines named in a message.
const NAMED_LINES_MAX: usize = 20;

impl UnusedKeyFileLines {
    /// Returns true if every line is a key, a comment or empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for UnusedKeyFileLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = &self.0[..self.0.len().min(NAMED_LINES_MAX)];
        for (index, (line, fault)) in named.iter().enumerate() {
            if named[..index].iter().any(|(_, earlier)| earlier == fault) {
                continue;
            }
            let same_error = named[index + 1..].iter().filter(|(_, later)| later == fault);
            let separator = if index == 0 { "" } else { "; " };
            let noun = if same_error.clone().next().is_some() { "lines" } else { "line" };
            write!(f, "{separator}{noun} {line}")?;
            same_error.clone().try_for_each(|(line, _)| write!(f, ", {line}"))?;
            write!(f, ": {fault}")?;
        }
        match self.0.len() - named.len() {
            0 => Ok(()),
            more => write!(f, "; and {more} more lines"),
        }
    }
}

/// Reason why a line of a key file contains no usable key.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum KeyFileLineError {
    /// The line does not have three words, or a fourth one that is no list of addresses.
    #[error("{0} words; write an identifier, a type and a key")]
    WordCount(usize),
    /// The first word is not an identifier.
    #[error("the identifier is not a number from 1 to 4294967295")]
    BadId,
    /// Key of type MD5, whose digests can be forged; a line of an identifier and one other word
    /// also is such a key in chrony.
    #[error("MD5 is not supported (RFC 8573): create a key of type AES128 or SHA256")]
    Md5,
    /// The type is supported only by other programs.
    #[error("{0} is not supported: create a key of type AES128 or SHA256")]
    UnsupportedType(&'static str),
    /// The second word is not a type.
    #[error("unknown type; write AES128, AES256, SHA1, SHA256, SHA384 or SHA512")]
    BadType,
    /// `HEX:` is not followed by pairs of hexadecimal digits.
    #[error("HEX: must be followed by pairs of hexadecimal digits")]
    BadHex,
    /// The key does not match its type.
    #[error("{0}")]
    BadKey(KeyError),
    /// An earlier line has the same identifier.
    #[error("key {id} is already defined in line {first}; remove one of the two")]
    DuplicateId {
        /// Identifier that both lines have.
        id: u32,
        /// Number of the line with the first key of that identifier, from 1.
        first: usize,
    },
}

impl KeyFile {
    /// Parses the content of a file, which need not be UTF-8, because a key may have any bytes.
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        let (mut keys, mut unused, mut lines_by_id) = (Vec::new(), Vec::new(), HashMap::new());
        for (line, text) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            match parse_line(text) {
                Ok(None) => {}
                Ok(Some(key)) => {
                    let id = key.id();
                    let first = *lines_by_id.entry(id).or_insert(line);
                    if first == line {
                        keys.push(key);
                    } else {
                        unused.push((line, KeyFileLineError::DuplicateId { id, first }));
                    }
                }
                Err(fault) => unused.push((line, fault)),
            }
        }
        Self { keys: KeyTable::new(keys), unused: UnusedKeyFileLines(unused) }
    }
}

fn parse_line(line: &[u8]) -> Result<Option<SymmetricKey>, KeyFileLineError> {
    let line = line.trim_ascii();
    if line.first().is_some_and(|first| b"#%;!".contains(first)) {
        return Ok(None);
    }
    let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    // A key may begin with `#`, because chrony supports comments only on lines of their own.
    let is_comment = |(index, word): &(usize, &[u8])| *index != 2 && word.starts_with(b"#");
    let words = words.enumerate().take_while(|word| !is_comment(word)).map(|(_, word)| word);
    let words: Vec<&[u8]> = words.collect();
    let (id, kind, key) = match *words.as_slice() {
        [] => return Ok(None),
        [id, kind, key] => (id, kind, key),
        [id, kind, key, addresses] if are_addresses(addresses) => (id, kind, key),
        _ => return Err(word_count_error(&words)),
    };
    let id = parse_identifier(id).filter(|id| *id > 0).ok_or(KeyFileLineError::BadId)?;
    let algorithm = parse_algorithm(kind)?;
    let bytes = key_bytes(key, algorithm)?;
    SymmetricKey::new(id, algorithm, &bytes).map(Some).map_err(KeyFileLineError::BadKey)
}

fn parse_identifier(word: &[u8]) -> Option<u32> {
    str::from_utf8(word).ok()?.parse().ok()
}

/// Returns true if a word is a comma-separated list of addresses or prefixes.
fn are_addresses(word: &[u8]) -> bool {
    let is_address = |text: &str| {
        let (address, length) = text.split_once('/').unwrap_or((text, "0"));
        address.parse::<IpAddr>().is_ok() && length.parse::<u8>().is_ok_and(|bits| bits <= 128)
    };
    str::from_utf8(word).is_ok_and(|text| text.split(',').all(is_address))
}

/// Returns the error for a wrong number of words. In chrony, a line of two words is an MD5 key.
fn word_count_error(words: &[&[u8]]) -> KeyFileLineError {
    match words {
        [id, key] if parse_identifier(id).is_some() && parse_algorithm(key).is_err() => {
            KeyFileLineError::Md5
        }
        _ => KeyFileLineError::WordCount(words.len()),
    }
}

fn parse_algorithm(kind: &[u8]) -> Result<MacAlgorithm, KeyFileLineError> {
    let kind = str::from_utf8(kind).map_err(|_| KeyFileLineError::BadType)?;
    if let Some(algorithm) = MacAlgorithm::from_name(kind) {
        return Ok(algorithm);
    }
    // One-letter types of old versions of ntpd: M is MD5; A, N and S are formats of DES keys.
    match kind.to_ascii_uppercase().as_str() {
        "MD5" | "M" => Err(KeyFileLineError::Md5),
        "A" | "N" | "S" => Err(KeyFileLineError::UnsupportedType("DES")),
        kind => Err(UNSUPPORTED_TYPES
            .into_iter()
            .find(|other| *other == kind)
            .map_or(KeyFileLineError::BadType, KeyFileLineError::UnsupportedType)),
    }
}

fn key_bytes(key: &[u8], algorithm: MacAlgorithm) -> Result<Zeroizing<Vec<u8>>, KeyFileLineError> {
    if let Some(digits) = key.strip_prefix(b"HEX:") {
        return parse_hex(digits).ok_or(KeyFileLineError::BadHex);
    }
    if let Some(text) = key.strip_prefix(b"ASCII:") {
        return Ok(Zeroizing::new(text.to_vec()));
    }
    let as_text = || Zeroizing::new(key.to_vec());
    let Some(bytes) = parse_hex(key) else { return Ok(as_text()) };
    let is_hex = match algorithm.key_len() {
        Some(len) => key.len() != len,
        None => key.len() > TEXT_LEN_MAX,
    };
    Ok(if is_hex { bytes } else { as_text() })
}

fn parse_hex(digits: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let byte = |pair: &[u8]| pair.iter().fold(0, |value, digit| value << 4 | hex_value(*digit));
    Some(Zeroizing::new(digits.chunks(2).map(byte).collect()))
}
