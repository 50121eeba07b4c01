"""The admin's page of books, on which covers are uploaded."""

from django.contrib import admin

from library.models import Book

admin.site.register(Book)
