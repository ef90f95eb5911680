//! The text of a token: `lh_<environment>_<id>_<secret>`. The secret ends with a checksum, so that
//! a typo or a partial copy is detected without a lookup, and secret scanners recognise a token.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::{access_token::TokenDigest, error::Invalid};

const MARK: &str = "lh";
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Characters of the id: enough that no two tokens share one.
const ID: usize = 8;
/// Random characters of the secret: 220 bits.
const RANDOM: usize = 37;
/// Characters of the checksum: 32 bits.
const CHECK: usize = 6;
/// Characters of the name of an environment.
const ENVIRONMENT: std::ops::RangeInclusive<usize> = 1..=12;

/// A whole token. It is shown once, when it is made, and never logged.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenText(String);

/// Why a text is not a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    #[error("this is not a token: one looks like lh_live_1a2b3c4d_ and 43 letters and digits")]
    Shape,
    #[error("this token has a typo or is not complete: its checksum does not fit")]
    Checksum,
}

impl TokenText {
    /// A new token. `draw` gives unpredictable random bytes.
    pub fn mint(environment: &str, mut draw: impl FnMut() -> u8) -> Result<Self, Invalid> {
        if !is_environment(environment) {
            return Err(Invalid::new(
                "environment",
                format!("is {environment:?}"),
                "1 to 12 of a-z and 0-9",
            ));
        }

        let mut random = |count| (0..count).map(|_| letter(&mut draw)).collect::<String>();
        let body = format!("{MARK}_{environment}_{}_{}", random(ID), random(RANDOM));
        Ok(Self(format!("{body}{}", checksum(&body))))
    }

    /// Parses a text and verifies its checksum.
    pub fn parse(text: &str) -> Result<Self, TokenFault> {
        let fields: Vec<&str> = text.splitn(5, '_').collect();
        let [MARK, environment, id, secret] = fields[..] else {
            return Err(TokenFault::Shape);
        };
        let is_plain = |part: &str, length| {
            part.len() == length && part.bytes().all(|c| ALPHABET.contains(&c))
        };
        if !is_environment(environment) || !is_plain(id, ID) || !is_plain(secret, RANDOM + CHECK) {
            return Err(TokenFault::Shape);
        }

        let (body, check) = text.split_at(text.len() - CHECK);
        if checksum(body) != check {
            return Err(TokenFault::Checksum);
        }

        Ok(Self(text.to_owned()))
    }

    /// The part by which it is listed and revoked.
    pub fn id(&self) -> &str {
        self.0.split('_').nth(2).unwrap_or_default()
    }

    /// The prefix, which is not secret.
    pub fn prefix(&self) -> &str {
        self.0.rsplit_once('_').map_or("", |(prefix, _)| prefix)
    }

    /// The digest, which the store keeps instead.
    pub fn digest(&self) -> TokenDigest {
        TokenDigest(Sha256::digest(self.0.as_bytes()).into())
    }

    /// The text itself, to show it once.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for TokenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenText({}_…)", self.prefix())
    }
}

fn is_environment(text: &str) -> bool {
    ENVIRONMENT.contains(&text.len())
        && text
            .bytes()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
}

/// One of the 62 letters, all equally likely: bytes that would favour some are drawn again.
fn letter(draw: &mut impl FnMut() -> u8) -> char {
    loop {
        let byte = usize::from(draw());
        if byte < 4 * ALPHABET.len() {
            return char::from(ALPHABET[byte % ALPHABET.len()]);
        }
    }
}

/// The first 32 bits of the SHA-256 of the text before it.
fn checksum(body: &str) -> String {
    let [a, b, c, d, ..]: [u8; 32] = Sha256::digest(body.as_bytes()).into();
    let mut number = u32::from_be_bytes([a, b, c, d]) as usize;
    let mut letters = ['0'; CHECK];
    for letter in letters.iter_mut().rev() {
        *letter = char::from(ALPHABET[number % ALPHABET.len()]);
        number /= ALPHABET.len();
    }

    letters.iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A deterministic source of bytes.
    fn drawing() -> impl FnMut() -> u8 {
        let mut state = 7_u32;
        move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        }
    }

    #[test]
    fn a_minted_token_is_read_back() {
        let token = TokenText::mint("live", drawing()).unwrap();
        let text = token.reveal();
        assert_eq!(text.len(), "lh_live_".len() + 8 + 1 + 43);
        assert_eq!(TokenText::parse(text).unwrap(), token);
        assert_eq!(token.prefix(), format!("lh_live_{}", token.id()));
        assert!(token.digest().is_of(&token));
        let other = TokenText::mint("test", drawing()).unwrap();
        assert!(!token.digest().is_of(&other), "the environment counts, too");
    }

    #[test]
    fn a_typo_is_distinguished_from_other_text() {
        let token = TokenText::mint("live", drawing()).unwrap();
        let text = token.reveal();
        for index in "lh_live_".len()..text.len() {
            let mut typo = text.as_bytes().to_vec();
            if typo[index] == b'_' {
                continue;
            }

            typo[index] = if typo[index] == b'x' { b'y' } else { b'x' };
            let typo = String::from_utf8(typo).unwrap();
            assert_eq!(
                TokenText::parse(&typo),
                Err(TokenFault::Checksum),
                "{index}"
            );
        }

        for other in [
            "",
            "lh",
            "lh_live_x_y",
            "Bearer",
            &text[..text.len() - 1],
            &format!("{text}x"),
            "lh_LIVE_a_b",
        ] {
            assert_eq!(TokenText::parse(other), Err(TokenFault::Shape), "{other}");
        }
    }

    #[test]
    fn debug_output_has_no_secret() {
        let token = TokenText::mint("live", drawing()).unwrap();
        let secret = token.reveal().rsplit_once('_').unwrap().1;
        assert!(!format!("{token:?} {:?}", token.digest()).contains(secret));
    }
}
