"""The admin, and the books as JSON."""

from django.contrib import admin
from django.http import JsonResponse
from django.urls import path

from library.models import Book


def books(request):
    return JsonResponse({book.title: book.cover.url for book in Book.objects.all()})


urlpatterns = [path("admin/", admin.site.urls), path("books", books)]
