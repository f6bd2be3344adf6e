"""One scenario on several frameworks; each module here but the underscored ones drives one of them."""
