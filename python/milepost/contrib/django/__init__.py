"""Milepost for Django: `manage.py serve`, once `milepost.contrib.django` is in INSTALLED_APPS."""
