//! The conformance suite of the notifier contract.

use futures::poll;
use libtest_mimic::Trial;
use longhaul_domain::contract::Notifier;

use crate::suite::{self, Case, Factory, cases, within_deadline};

/// Makes a notifier without notifications.
pub type NotifierFactory = Factory<(), dyn Notifier>;

/// One trial for each case, named `{backend}::notifier::{sentence}`.
pub fn trials(backend: &str, factory: &NotifierFactory) -> Vec<Trial> {
    suite::trials(backend, "notifier", factory, cases())
}

fn cases() -> Vec<Case<NotifierFactory>> {
    cases![
        a_notification_without_a_waiter_is_not_lost,
        a_notification_wakes_the_waiter,
        every_further_notification_wakes_again,
        many_notifications_do_not_block,
        a_cancelled_wait_leaves_the_notification,
    ]
}

async fn a_notification_without_a_waiter_is_not_lost(make: NotifierFactory) {
    let notifier = make(()).await;
    notifier.notify("default");
    within_deadline(notifier.notified()).await;
}

async fn a_notification_wakes_the_waiter(make: NotifierFactory) {
    let notifier = make(()).await;
    let mut waiting = notifier.notified();

    // The wait may return early. If it does not, the notification must end it.
    if poll!(&mut waiting).is_pending() {
        notifier.notify("default");
        within_deadline(waiting).await;
    }
}

async fn every_further_notification_wakes_again(make: NotifierFactory) {
    let notifier = make(()).await;
    for queue in ["default", "other", "default"].repeat(20) {
        notifier.notify(queue);
        within_deadline(notifier.notified()).await;
    }
}

async fn many_notifications_do_not_block(make: NotifierFactory) {
    let notifier = make(()).await;
    (0..100_000).for_each(|_| notifier.notify("default"));
    within_deadline(notifier.notified()).await;
}

async fn a_cancelled_wait_leaves_the_notification(make: NotifierFactory) {
    let notifier = make(()).await;
    for _ in 0..100 {
        let mut cancelled = notifier.notified();
        let _ = poll!(&mut cancelled);
        notifier.notify("default");
        drop(cancelled);
        within_deadline(notifier.notified()).await;
    }
}
