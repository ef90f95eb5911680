//! The text of a token: `lh_<environment>_<id>_<secret>`, where the secret ends with a checksum, so that a typo or a
//! half-copied token is known without asking anybody, and a scanner of secrets knows a token from chance.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::{access_token::TokenDigest, error::Invalid};

const MARK: &str = "lh";
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Characters of the id: enough for people to tell tokens apart, and for no two to meet.
const ID: usize = 8;
/// Random characters of the secret: 220 bits.
const CHANCE: usize = 37;
/// Characters of the checksum: 32 bits.
const CHECK: usize = 6;
/// Characters of the name of an environment.
const ENVIRONMENT: std::ops::RangeInclusive<usize> = 1..=12;

/// A token, whole. It is shown once, when it is made, and has no way into a log.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenText(String);

/// Why a text is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    #[error("this is not a token: one looks like lh_live_1a2b3c4d_ and 43 letters and digits")]
    Shape,
    #[error("this token has a typo or is not complete: its checksum does not fit")]
    Checksum,
}

impl TokenText {
    /// A new one. `draw` gives random bytes that nobody can guess.
    pub fn mint(environment: &str, mut draw: impl FnMut() -> u8) -> Result<Self, Invalid> {
        if !is_environment(environment) {
            return Err(Invalid::new(
                "environment",
                format!("is {environment:?}"),
                "1 to 12 of a-z and 0-9",
            ));
        }
        let mut random = |count| (0..count).map(|_| letter(&mut draw)).collect::<String>();
        let body = format!("{MARK}_{environment}_{}_{}", random(ID), random(CHANCE));
        Ok(Self(format!("{body}{}", checksum(&body))))
    }

    /// Reads a text that somebody shows.
    pub fn parse(text: &str) -> Result<Self, TokenFault> {
        let parts: Vec<&str> = text.splitn(5, '_').collect();
        let [MARK, environment, id, secret] = parts[..] else {
            return Err(TokenFault::Shape);
        };
        let is_plain = |part: &str, length| {
            part.len() == length && part.bytes().all(|c| ALPHABET.contains(&c))
        };
        if !is_environment(environment) || !is_plain(id, ID) || !is_plain(secret, CHANCE + CHECK) {
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

    /// How it begins: what may be shown to people.
    pub fn prefix(&self) -> &str {
        self.0.rsplit_once('_').map_or("", |(prefix, _)| prefix)
    }

    /// What the store keeps in its place.
    pub fn digest(&self) -> TokenDigest {
        TokenDigest(Sha256::digest(self.0.as_bytes()).into())
    }

    /// The text itself, for the one moment in which it is shown.
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

/// One of the 62, each as likely as any other: bytes that would favour some are drawn again.
fn letter(draw: &mut impl FnMut() -> u8) -> char {
    loop {
        let byte = usize::from(draw());
        if byte < 4 * ALPHABET.len() {
            return char::from(ALPHABET[byte % ALPHABET.len()]);
        }
    }
}

/// The first 32 bits of the SHA-256 of what stands before it.
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

    /// Bytes that no two calls share.
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
    fn a_typo_is_told_apart_from_what_is_no_token() {
        let token = TokenText::mint("live", drawing()).unwrap();
        let text = token.reveal();
        for place in "lh_live_".len()..text.len() {
            let mut typo = text.as_bytes().to_vec();
            if typo[place] == b'_' {
                continue;
            }
            typo[place] = if typo[place] == b'x' { b'y' } else { b'x' };
            let typo = String::from_utf8(typo).unwrap();
            assert_eq!(
                TokenText::parse(&typo),
                Err(TokenFault::Checksum),
                "{place}"
            );
        }
        for no_token in [
            "",
            "lh",
            "lh_live_x_y",
            "Bearer",
            &text[..text.len() - 1],
            &format!("{text}x"),
            "lh_LIVE_a_b",
        ] {
            assert_eq!(
                TokenText::parse(no_token),
                Err(TokenFault::Shape),
                "{no_token}"
            );
        }
    }

    #[test]
    fn the_text_does_not_show_by_accident() {
        let token = TokenText::mint("live", drawing()).unwrap();
        let secret = token.reveal().rsplit_once('_').unwrap().1;
        assert!(!format!("{token:?} {:?}", token.digest()).contains(secret));
    }
}
