//! A provider that needs no network. It writes the same text for the same prompt, word by word,
//! about as fast as a model.

use std::time::Duration;

use futures::{StreamExt as _, stream, stream::BoxStream};

use super::{Piece, Prompt, Provider, ProviderError, Usage};

/// 25 ms per word are 40 words a second, like a model of medium size.
const PACE: Duration = Duration::from_millis(25);
/// How many words a summary takes from the beginning and from the end of its scene.
const BEGINNING_WORDS: usize = 22;
const END_WORDS: usize = 14;

/// The sentences that a scene is composed of.
const OPENINGS: [&str; 4] = [
    "It was late when it began, and the whole house was awake.",
    "The morning came in grey over the roofs, without a wind.",
    "Long afterwards they would not agree on how it had started.",
    "There was rain on the windows, and the fire had burned low.",
];
const MIDDLES: [&str; 4] = [
    "They spoke of it quietly, as people do who have already made up their minds.",
    "For a while there was nothing to hear but the clock on the stairs.",
    "A door closed somewhere below, and both of them looked up.",
    "Nothing was said that had not been said before, and yet it was not the same.",
];
const ENDINGS: [&str; 4] = [
    "When the lamp went out they did not light it again.",
    "In the end it was settled with a nod, and the night went on.",
    "No voice called them back, and they did not turn round.",
    "What remained of it was a chair by the window, and the cold tea.",
];

/// A provider without a key, a bill or a network.
#[derive(Debug, Clone)]
pub struct Offline {
    pace: Duration,
}

impl Default for Offline {
    fn default() -> Self {
        Self { pace: PACE }
    }
}

impl Offline {
    /// A provider that takes this long for each word. Tests use zero.
    pub const fn paced(pace: Duration) -> Self {
        Self { pace }
    }
}

impl Provider for Offline {
    fn key(&self) -> &'static str {
        "offline/steady"
    }

    fn write(&self, prompt: Prompt) -> BoxStream<'static, Result<Piece, ProviderError>> {
        let pace = self.pace;
        let answer = answer(&prompt);
        let words = |text: &str| text.split_whitespace().count() as u64;
        let usage = Usage {
            prompt_tokens: words(prompt.text()),
            completion_tokens: words(&answer),
        };

        let pieces: Vec<String> = answer.split_inclusive(' ').map(str::to_owned).collect();
        let texts = stream::iter(pieces).then(move |word| async move {
            if pace > Duration::ZERO {
                tokio::time::sleep(pace).await;
            }
            Ok(Piece::Text(word))
        });

        texts.chain(stream::iter([Ok(Piece::Usage(usage))])).boxed()
    }
}

fn answer(prompt: &Prompt) -> String {
    match prompt {
        Prompt::Summarize(scene) => summary(scene),
        Prompt::Write(summary) => scene(summary),
    }
}

/// The beginning and the end of a scene.
fn summary(scene: &str) -> String {
    let words: Vec<&str> = scene.split_whitespace().collect();
    if words.len() <= BEGINNING_WORDS + END_WORDS {
        return format!("In short: {}", words.join(" "));
    }

    let beginning = &words[..BEGINNING_WORDS];
    let end = &words[words.len() - END_WORDS..];
    format!(
        "It begins: {} … It ends: {}",
        beginning.join(" "),
        end.join(" ")
    )
}

/// A scene around the summary.
fn scene(summary: &str) -> String {
    let seed = summary.bytes().fold(17_usize, |seed, byte| {
        seed.wrapping_mul(31).wrapping_add(usize::from(byte))
    });
    let pick = |phrases: [&'static str; 4], shift: u32| phrases[(seed >> shift) % 4];
    let [opening, middle, ending] = [pick(OPENINGS, 0), pick(MIDDLES, 2), pick(ENDINGS, 4)];
    format!("{opening} {} {middle} {ending}", summary.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn answer_to(prompt: &Prompt) -> (String, Option<Usage>) {
        let pieces: Vec<_> = Offline::paced(Duration::ZERO)
            .write(prompt.clone())
            .collect()
            .await;
        let mut text = String::new();
        let mut usage = None;

        for piece in pieces {
            match piece.unwrap() {
                Piece::Text(more) => text += &more,
                Piece::Usage(reported) => usage = Some(reported),
            }
        }

        (text, usage)
    }

    #[tokio::test]
    async fn the_same_prompt_gets_the_same_answer_word_by_word() {
        let prompt = Prompt::Write("A keeper finds a letter.".to_owned());
        let (first, usage) = answer_to(&prompt).await;
        assert_eq!(first, answer_to(&prompt).await.0);
        assert!(first.contains("A keeper finds a letter."));
        assert_eq!(
            usage.unwrap().completion_tokens,
            first.split_whitespace().count() as u64
        );
    }

    #[tokio::test]
    async fn a_summary_is_shorter_than_its_scene() {
        let scene = (0..200)
            .map(|n| format!("word{n}"))
            .collect::<Vec<_>>()
            .join(" ");
        let (summary, _) = answer_to(&Prompt::Summarize(scene)).await;
        assert!(summary.starts_with("It begins: word0 ") && summary.ends_with("word199"));
        assert!(summary.split_whitespace().count() < 50);
    }
}
