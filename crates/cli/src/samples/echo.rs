use longhaul::{Context, Outcome, Task};

/// `sample.echo`: returns its parameters.
#[derive(Debug)]
pub struct Echo;

impl Task for Echo {
    const TYPE: &'static str = "sample.echo";
    type Params = serde_json::Value;
    type Output = serde_json::Value;

    async fn run(&self, ctx: Context<Self>) -> Outcome<serde_json::Value> {
        Ok(ctx.params.clone())
    }
}
